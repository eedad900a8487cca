"""Sets of values that a search may try, and the list of values that each stands for."""

from __future__ import annotations

import math
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import AfterValidator, Field, field_validator, model_validator

from ._problems import problem
from ._record import Count, Fraction, Positive, Real, Record
from ._variants import ByShape


T = TypeVar("T")
GRID_POINTS = 9  # of a range of real numbers without a step


class Choices(Record, Generic[T]):
    """Listed values."""

    choices: tuple[T, ...] = Field(description="Distinct values, at least one.")

    @field_validator("choices")
    @classmethod
    def _distinct(cls, value: tuple[T, ...]) -> tuple[T, ...]:
        if not value:
            raise problem("empty_choices", "", "is empty; list at least one value")
        for place, item in enumerate(value):
            if item in value[:place]:
                raise problem("repeated_choice", "", f"names {item!r} twice")
        return value


class IntegerBounds(Record):
    """Bounds of a set of integers."""

    min: Annotated[int, Field(strict=True)] = Field(description="Smallest value.")
    max: Annotated[int, Field(strict=True)] = Field(description="Largest value.")
    step: Count | None = Field(
        default=None, description="Distance of two values; linear scale only."
    )
    scale: Literal["linear", "log"] = Field(
        default="linear",
        description="linear: min, min + step, ... up to max. log: min, the powers of "
        "two between, and max.",
    )

    @model_validator(mode="after")
    def _check(self) -> IntegerBounds:
        _check_bounds(self.min, self.max, self.step, self.scale)
        if self.scale == "linear" and self.step is None:
            raise problem(
                "missing_field", "step", "is needed by a linear integer range"
            )
        return self


class NumericBounds(Record):
    """Bounds of a set of real numbers."""

    min: Real = Field(description="Smallest value.")
    max: Real = Field(description="Largest value.")
    step: Positive | None = Field(
        default=None,
        description=f"Distance of two values; linear scale only; null = {GRID_POINTS} "
        "values.",
    )
    scale: Literal["linear", "log"] = Field(
        default="linear",
        description=f"linear: equal steps. log: {GRID_POINTS} values with equal ratios.",
    )

    @model_validator(mode="after")
    def _check(self) -> NumericBounds:
        _check_bounds(self.min, self.max, self.step, self.scale)
        return self


class IntegerRange(Record):
    """A bounded set of integers."""

    range: IntegerBounds = Field(description="Bounds of the set.")


class NumericRange(Record):
    """A bounded set of real numbers."""

    range: NumericBounds = Field(description="Bounds of the set.")


def _within(limit: float) -> AfterValidator:
    """Hold the ends of a range to what a plain value of the field may be."""

    def check(value: Any) -> Any:
        if isinstance(value, IntegerRange | NumericRange):
            if value.range.min <= 0:
                raise problem(
                    "range_limit",
                    "range.min",
                    f"must be above 0, got {value.range.min}",
                )
            if value.range.max > limit:
                raise problem(
                    "range_limit",
                    "range.max",
                    f"must be at most {limit}, got {value.range.max}",
                )
        return value

    return AfterValidator(check)


CountDomain = Annotated[
    Count | Choices[Count] | IntegerRange, ByShape(), _within(math.inf)
]
CountChoices = Annotated[Count | Choices[Count], ByShape()]
PositiveDomain = Annotated[
    Positive | Choices[Positive] | NumericRange, ByShape(), _within(math.inf)
]
FractionDomain = Annotated[
    Fraction | Choices[Fraction] | NumericRange, ByShape(), _within(1)
]


def expand(domain: Any) -> tuple[Any, ...]:
    """The values that a domain stands for, in order; a plain value stands for itself.

    >>> expand(IntegerRange(range=IntegerBounds(min=6, max=40, scale="log")))
    (6, 8, 16, 32, 40)
    """
    if isinstance(domain, Choices):
        return domain.choices
    if isinstance(domain, IntegerRange):
        return _integers(domain.range)
    if isinstance(domain, NumericRange):
        return _numbers(domain.range)
    return (domain,)


def _integers(bounds: IntegerBounds) -> tuple[int, ...]:
    if bounds.scale == "linear":
        return tuple(range(bounds.min, bounds.max + 1, bounds.step or 1))
    powers = (1 << k for k in range(bounds.max.bit_length()))
    between = [power for power in powers if bounds.min < power < bounds.max]
    return tuple(dict.fromkeys([bounds.min, *between, bounds.max]))


def _numbers(bounds: NumericBounds) -> tuple[float, ...]:
    low, high = bounds.min, bounds.max
    if low == high:
        return (low,)
    if bounds.step is not None:
        # The slack keeps the upper end when the step divides the width but for rounding.
        count = int((high - low) / bounds.step * (1 + 1e-12)) + 1
        return tuple(min(low + k * bounds.step, high) for k in range(count))
    last = GRID_POINTS - 1
    if bounds.scale == "log":
        inner = [low * (high / low) ** (k / last) for k in range(1, last)]
    else:
        inner = [low + (high - low) * k / last for k in range(1, last)]
    return (low, *inner, high)


def _check_bounds(low: float, high: float, step: float | None, scale: str) -> None:
    if low > high:
        raise problem("empty_range", "max", f"is {high}, below min = {low}")
    if scale == "log" and step is not None:
        raise problem("log_with_step", "step", "does not apply to the log scale")
    if scale == "log" and low <= 0:
        raise problem("log_needs_positive", "min", f"must be above 0, got {low}")
