"""The frozen record that every configuration block is, and its strict scalar types."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    Strict,
    StringConstraints,
    model_serializer,
)
from pydantic_core import PydanticCustomError


class Record(BaseModel):
    """Immutable, hashable, unknown keys refused.

    Fields named in `omitted` are left out of the written form while they hold their
    default: absence and the default are the same identity on the wire.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=True)
    omitted: ClassVar[frozenset[str]] = frozenset()

    @model_serializer(mode="wrap")
    def _write(self, handler: Any) -> dict[str, Any]:
        written = handler(self)
        for name in self.omitted:
            field = type(self).model_fields[name]
            default = field.get_default(call_default_factory=True)
            if getattr(self, name) == default:
                written.pop(name, None)
        return written


# Integers as the wire format has them: no booleans, no floats, no numeric strings.
U32 = Annotated[int, Strict(), Field(ge=0, le=2**32 - 1)]
U64 = Annotated[int, Strict(), Field(ge=0, le=2**64 - 1)]
Flag = Annotated[bool, Strict()]
Text = Annotated[str, StringConstraints(strict=True)]
Real = Annotated[float, Strict(), Field(allow_inf_nan=False)]
Count = Annotated[int, Strict(), Field(gt=0)]
Whole = Annotated[int, Strict(), Field(ge=0)]
Positive = Annotated[float, Strict(), Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Strict(), Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Strict(), Field(gt=0, le=1, allow_inf_nan=False)]
Name = Annotated[str, StringConstraints(strict=True, min_length=1)]

_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _parse_weight(value: Any) -> Any:
    if isinstance(value, str):
        if value in _NON_FINITE:
            return _NON_FINITE[value]
        raise PydanticCustomError(
            "wrong_type", "Input should be a number, NaN, Infinity or -Infinity"
        )
    return value


def _write_weight(value: float) -> float | str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


# A feature weight: non-finite values travel as three exact words.
Weight = Annotated[
    float, Strict(), BeforeValidator(_parse_weight), PlainSerializer(_write_weight)
]


def read_as(**synonyms: str) -> BeforeValidator:
    """Accept old spellings of an enumeration's values."""

    def replace(value: Any) -> Any:
        return synonyms.get(value, value) if isinstance(value, str) else value

    return BeforeValidator(replace)
