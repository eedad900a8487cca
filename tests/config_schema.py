"""Comparing configuration records with a machine-readable schema, field by field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticUndefined

from aisim_jax.config._problems import records_in


Schema = dict[str, dict[str, Any]]
Place = tuple[str, tuple[type[BaseModel], ...]]


def field_mismatches(schema: Schema, root: type[BaseModel]) -> Iterator[str]:
    """What the records say differently from the schema, one line each."""
    seen: set[Place] = set()
    queue: list[Place] = [("<root>", (root,))]
    while queue:
        place = queue.pop()
        if place in seen:
            continue
        seen.add(place)
        name, homes = place
        for field, wanted in schema[name].items():
            found = [home for home in homes if field in home.model_fields]
            if not found:
                yield f"{name}.{field}: missing"
                continue
            yield from _compare(f"{name}.{field}", field, wanted, found)
            inner = [
                record
                for home in found
                for record in records_in(home.model_fields[field].annotation)
            ]
            queue += [
                (ref, tuple(dict.fromkeys(r for r in inner if fits(schema[ref], r))))
                for ref in _references(wanted)
            ]


def fits(fields: dict[str, Any], record: type[BaseModel]) -> bool:
    """Whether a record can be (a variant of) the schema's record."""
    kind = fields.get("type", fields.get("kind"))
    own = record.model_fields
    if "choices" in own or "range" in own:
        return ("range" in own) == ("range" in fields)
    if kind and "const" in kind:
        name = "type" if "type" in own else "kind"
        return name in own and kind["const"] in getattr(
            own[name].annotation, "__args__", ()
        )
    return bool(set(own) & set(fields)) and not (
        set(own) - set(fields) - {name for name in own if name in ADDED}
    )


# Fields of ours that the reference's schema lacks.
ADDED = {
    "random_range_ratio",
    "lengths_seed",
    "seed",
    "burstiness",
    "seeds",
    "pricing",
    "compat",
}


def _references(wanted: Any) -> list[str]:
    if isinstance(wanted, dict):
        own = [wanted["ref"]] if "ref" in wanted else []
        return own + [ref for part in wanted.values() for ref in _references(part)]
    if isinstance(wanted, list):
        return [ref for part in wanted for ref in _references(part)]
    return []


def _compare(
    place: str, field: str, wanted: dict[str, Any], homes: list[type[BaseModel]]
) -> Iterator[str]:
    for home in homes:
        info = home.model_fields[field]
        required = info.is_required()
        if wanted.get("required", False) and not (required or field == "type"):
            yield f"{place}: must be required in {home.__name__}"
        if "default" in wanted and wanted["default"] is not None and not required:
            default = info.get_default(call_default_factory=True)
            if default is PydanticUndefined or default != wanted["default"]:
                yield f"{place}: default {default!r}, not {wanted['default']!r}"
    for value in _accepted(wanted):
        if not any(_takes(home, field, value) for home in homes):
            yield f"{place}: refuses {value!r}"
    for value in _refused(wanted):
        for home in (home for home in homes if _takes(home, field, value)):
            yield f"{place}: {home.__name__} takes {value!r}"


def _takes(home: type[BaseModel], field: str, value: Any) -> bool:
    info = home.model_fields[field]
    kind: Any = info.annotation
    for mark in info.metadata:
        kind = Annotated[kind, mark]
    try:
        TypeAdapter(kind).validate_python(value)
    except ValidationError:
        return False
    return True


def _accepted(wanted: dict[str, Any]) -> list[Any]:
    """Sample values that the schema allows, from its scalars only."""
    kinds = wanted.get("any_of", [wanted])
    values = []
    for kind in kinds:
        if "enum" in kind:
            values += kind["enum"]
        if "const" in kind:
            values.append(kind["const"])
        if "choices_of" in kind:
            values += [{"choices": [v]} for v in _accepted(kind["choices_of"])]
        values += _edges(kind)
    return values


def _edges(kind: dict[str, Any]) -> list[Any]:
    if kind.get("type") == "integer":
        low = kind.get("ge", kind.get("gt", -1) + 1)
        return [low, *([kind["le"]] if "le" in kind else [])]
    if kind.get("type") == "number":
        low = kind["ge"] if "ge" in kind else kind.get("gt", -1.0) + 0.25
        return [float(low), *([float(kind["le"])] if "le" in kind else [])]
    if kind.get("type") == "boolean":
        return [True, False]
    return []


def _refused(wanted: dict[str, Any]) -> list[Any]:
    """Values just outside the schema's bounds, and values of foreign kinds."""
    kinds = wanted.get("any_of", [wanted])
    names = {kind.get("type") for kind in kinds}
    values: list[Any] = []
    for kind in kinds:
        if kind.get("type") in ("integer", "number"):
            values.append(True)
            values += ["1"] if "string" not in names else []
            for bound, step in (("gt", 0), ("ge", -1), ("le", 1), ("lt", 0)):
                values += [kind[bound] + step] if bound in kind else []
        if kind.get("type") == "integer" and "number" not in names:
            values.append(1.5)
        if "enum" in kind and "string" not in names:
            values.append("no such word")
    return values
