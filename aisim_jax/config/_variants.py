"""Unions whose member is chosen by what was written, so that errors name one member."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, get_args

from pydantic import BaseModel, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from ._problems import problem


@dataclass(frozen=True)
class ByType:
    """Choose the record by its `type`; `default` is meant when none is written.

    A field that only another member has is refused by that member's name. Nulls count
    as absent. `inert` values are ignored where their field does not belong.
    """

    default: str
    inert: tuple[tuple[str, Any], ...] = ()

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        members = {_type_of(member): member for member in get_args(source)}

        def choose(value: Any) -> Any:
            return self._choose(value, members)

        return core_schema.no_info_before_validator_function(
            choose,
            core_schema.tagged_union_schema(
                {f"<{name}>": handler(record) for name, record in members.items()},
                discriminator=_tag_of_type,
            ),
        )

    def _choose(self, value: Any, members: dict[str, type[BaseModel]]) -> Any:
        if isinstance(value, BaseModel):
            return value
        if not isinstance(value, Mapping):
            raise problem(
                "wrong_type", "", f"must be a mapping of fields, got {value!r}"
            )
        written = {name: item for name, item in value.items() if item is not None}
        kind = written.setdefault("type", self.default)
        if kind not in members:
            raise problem(
                "unknown_enum_value",
                "type",
                f"{kind!r} is not one of {', '.join(members)}",
            )
        own = members[kind].model_fields
        for name in [name for name in written if name not in own]:
            homes = [
                key for key, other in members.items() if name in other.model_fields
            ]
            if any(name == key and written[name] == item for key, item in self.inert):
                del written[name]
            elif homes:
                raise problem(
                    "foreign_field",
                    name,
                    f"belongs to type {' or '.join(homes)}, not to {kind}; remove it "
                    "or change the type",
                )
        return written


def _type_of(member: type[BaseModel]) -> str:
    return get_args(member.model_fields["type"].annotation)[0]


def _tag_of_type(value: Any) -> str:
    return f"<{value['type'] if isinstance(value, Mapping) else value.type}>"


@dataclass(frozen=True)
class ByShape:
    """Choose between a plain value, `{choices: [...]}` and `{range: {...}}`."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        parts = get_args(source)
        domains = [part for part in parts if _is_record(part)]
        plain = reduce(or_, [part for part in parts if not _is_record(part)])
        members = {_shape_of(domain): domain for domain in domains}

        def choose(value: Any) -> Any:
            if isinstance(value, Mapping) and set(value) not in [{m} for m in members]:
                shapes = " or ".join(f"{{{name}: ...}}" for name in members)
                raise problem(
                    "unknown_domain",
                    "",
                    f"{dict(value)!r} is not a domain; write one value, or {shapes}",
                )
            return value

        def tag(value: Any) -> str:
            if isinstance(value, Mapping):
                return f"<{next(iter(value))}>"
            if isinstance(value, BaseModel):
                return f"<{_shape_of(type(value))}>"
            return "<value>"

        schemas = {f"<{name}>": handler(domain) for name, domain in members.items()}
        return core_schema.no_info_before_validator_function(
            choose,
            core_schema.tagged_union_schema(
                {"<value>": handler(plain), **schemas}, discriminator=tag
            ),
        )


def _is_record(part: Any) -> bool:
    return isinstance(part, type) and issubclass(part, BaseModel)


def _shape_of(domain: type[BaseModel]) -> str:
    return next(iter(domain.model_fields))


@dataclass(frozen=True)
class ByKind:
    """Choose between a word, a block and a list, in this order, by the kind of value."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        word, block, listed = (handler(member) for member in get_args(source))

        def tag(value: Any) -> str:
            if isinstance(value, list | tuple):
                return "<list>"
            return "<block>" if isinstance(value, Mapping | BaseModel) else "<word>"

        return core_schema.tagged_union_schema(
            {"<word>": word, "<block>": block, "<list>": listed}, discriminator=tag
        )
