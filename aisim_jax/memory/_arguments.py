"""Checks of capacity arguments, in the order in which they are reported."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from aisim_jax._errors import InvalidInputError, UnsupportedError

from ._constants import EngineMemory, MemoryConstants


# Arguments whose type and range are checked here, with a sentence, at run time.
if TYPE_CHECKING:
    Count = int
    Share = float
    Word = str
else:
    Count = Share = Word = object

LARGEST_BYTES = 2**53


def check_backend(backend: str, constants: MemoryConstants) -> EngineMemory:
    """Return the constants of `backend`, which must be known."""
    engine = constants.engines.get(backend)
    if engine is None:
        raise InvalidInputError(
            f"backend {backend!r} is unknown; use one of {', '.join(constants.engines)}"
        )
    return engine


def check_engine(backend: str, kind: str, constants: MemoryConstants) -> None:
    """`backend` must be known and budget memory the way `kind` says."""
    engine = check_backend(backend, constants)
    if kind != engine.fraction_kind:
        raise InvalidInputError(
            f"memory_fraction_kind is {kind!r}, but {backend} budgets "
            f"{engine.fraction_kind!r}; pass that"
        )


def check_share(name: str, value: Any, *, below_one: bool = False) -> None:
    """`value` must be a finite number in [0, 1], or in [0, 1) when `below_one`."""
    valid = _is_number(value) and math.isfinite(value) and 0 <= value <= 1
    if not valid or (below_one and value == 1):
        limit = "[0, 1)" if below_one else "[0, 1]"
        raise InvalidInputError(f"{name} is {value!r}, but must be a number in {limit}")


def check_count(name: str, value: Any, *, least: int, most: int | None = None) -> None:
    """`value` must be an integer, not a boolean, of at least `least`."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or value < least or (most is not None and value > most):
        limit = f"of at least {least}" + (f" and at most {most}" if most else "")
        raise InvalidInputError(f"{name} is {value!r}, but must be an integer {limit}")


def check_counts(least: int, **values: Any) -> None:
    """Every named value must be an integer of at least `least`; None is not given."""
    for name, value in values.items():
        if value is not None:
            check_count(name, value, least=least)


def check_capacity_override(name: str, value: Any) -> None:
    """An explicit device size must be a finite positive number of bytes."""
    if value is None:
        return
    if not _is_number(value) or not math.isfinite(value) or value <= 0:
        raise InvalidInputError(
            f"{name} is {value!r}, but must be a positive number of bytes"
        )


def check_encoder_layout(encoder_parallel: Word | None) -> None:
    """A vision tower is sharded (tp) or replicated (dp)."""
    if encoder_parallel not in (None, "tp", "dp"):
        raise InvalidInputError(
            f"encoder_parallel is {encoder_parallel!r}, but must be 'tp' or 'dp'"
        )


def check_profile_route(
    fpm_profile: object | None,
    request_occupancy_tokens: Count | None,
    context_length: Count | None,
) -> None:
    """Measured-resource profiles are not built, and two arguments need one."""
    if fpm_profile is not None:
        raise UnsupportedError(
            "fpm_profile: capacity from measured resource profiles is not built; omit "
            "it to estimate from the model's geometry"
        )
    for name, value in (
        ("request_occupancy_tokens", request_occupancy_tokens),
        ("context_length", context_length),
    ):
        if value is not None:
            raise InvalidInputError(
                f"{name}={value!r} needs fpm_profile; omit it, or ask capacity_report "
                "what a context length needs"
            )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
