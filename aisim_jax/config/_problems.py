"""Configuration mistakes as data: a code, the dotted path, and one sentence."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, LiteralString, cast, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from aisim_jax._errors import InvalidInputError


class ConfigError(InvalidInputError):
    """A configuration record is malformed or contradicts itself.

    `code` names the rule, `path` the dotted place (list items as `axes[1]`).
    """

    def __init__(self, code: str, path: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code
        self.path = path


def problem(code: str, field: str, sentence: str) -> PydanticCustomError:
    """The error that a validator raises: `field` is relative to its own record."""
    # The sentence travels as a value: braces in a template would be read as names.
    return PydanticCustomError(
        cast(LiteralString, code), "{sentence}", {"sentence": sentence, "field": field}
    )


def config_error(
    error: ValidationError, document: Any, record: type[BaseModel]
) -> ConfigError:
    """Turn the first mistake that pydantic found in a document into one sentence."""
    first, *others = error.errors(include_url=False)
    code = _code(first)
    path = _path(first, document)
    if code == "wrong_type":
        # Members of a union complain one by one about the same value.
        alike = [first, *(e for e in others if _path(e, document) == path)]
        words = [e["msg"].removeprefix("Input should be ") for e in alike]
        first["msg"] = "Input should be " + " or ".join(dict.fromkeys(words))
    if code == "unknown_enum_value" and first["type"].startswith("union_tag"):
        path = f"{path}.{_discriminator(first)}"
    return ConfigError(code, path, _sentence(first, code, path, record))


def _code(details: ErrorDetails) -> str:
    kind = details["type"]
    if kind in _CODES:
        return _CODES[kind]
    if kind == "literal_error":
        text = isinstance(details["input"], str)
        return "unknown_enum_value" if text else "wrong_type"
    if kind.endswith(("_type", "_parsing", "_than", "_equal", "_from_float")):
        return "wrong_type"
    return kind


_CODES = {
    "missing": "missing_field",
    "extra_forbidden": "unknown_field",
    "union_tag_invalid": "unknown_enum_value",
    "union_tag_not_found": "missing_field",
    "model_type": "wrong_type",
    "model_attributes_type": "wrong_type",
    "finite_number": "wrong_type",
}


def _path(details: ErrorDetails, document: Any) -> str:
    """Dotted path without the tags that discriminated unions put into locations."""
    location = [*details["loc"]]
    field = details.get("ctx", {}).get("field")
    place: list[str | int] = []
    here = document
    for step, part in enumerate(location):
        last = step == len(location) - 1 and not field
        if isinstance(part, str) and part.startswith("<"):
            continue
        if isinstance(here, Mapping):
            if part not in here and not (last and details["type"] == "missing"):
                continue
            here = here.get(part)
        elif isinstance(here, Sequence) and isinstance(part, int):
            here = here[part] if part < len(here) else None
        else:
            continue
        place.append(part)
    if field:
        place.append(field)
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.lstrip(".")


def _discriminator(details: ErrorDetails) -> str:
    return str(details.get("ctx", {}).get("discriminator", "kind")).strip("'")


def _sentence(
    details: ErrorDetails, code: str, path: str, record: type[BaseModel]
) -> str:
    value = details["input"]
    if "field" in details.get("ctx", {}):
        return f"{path}: {details['msg']}." if path else f"{details['msg']}."
    if code == "missing_field":
        return f"{path}: this field is required and missing; add it."
    if code == "unknown_field":
        return f"{path}: unknown field; {_nearest(path, record)}."
    if code == "wrong_type":
        return f"{path}: {_lower(details['msg'])}, got {_shown(value)}."
    if code == "unknown_enum_value":
        shown = value.get("kind") if isinstance(value, Mapping) else value
        allowed = details.get("ctx", {})
        names = allowed.get("expected") or allowed.get("expected_tags")
        return f"{path}: {_shown(shown)} is not one of {names}."
    return f"{path}: {details['msg']}." if path else f"{details['msg']}."


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _nearest(path: str, record: type[BaseModel]) -> str:
    """A hint at the field that was meant, from the records that can lie at the path."""
    *parents, name = re.sub(r"\[\d+\]", "", path).split(".")
    homes = [record]
    for parent in parents:
        fields = [
            home.model_fields[parent] for home in homes if parent in home.model_fields
        ]
        homes = [inner for field in fields for inner in records_in(field.annotation)]
    known = list(dict.fromkeys(name for home in homes for name in home.model_fields))
    close = get_close_matches(name, known, n=1, cutoff=0.6)
    if close:
        return f"the nearest known one is {close[0]!r}"
    if 0 < len(known) <= 12:
        return f"known fields are {', '.join(known)}"
    return "remove it or see the configuration reference"


def records_in(annotation: object) -> list[type[BaseModel]]:
    """Every record that an annotation can hold, also inside unions and lists."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for part in get_args(annotation) for found in records_in(part)]
