"""Arrival instants of an open loop, ms; the first one is at 0."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float

from .._errors import InvalidInputError
from ._chacha import uniforms


def constant_rate_ms(count: int, per_second: float) -> Float[np.ndarray, " arrivals"]:
    """Equal gaps of 1000 / per_second, summed one by one in float64.

    >>> constant_rate_ms(3, per_second=100.0)
    array([ 0., 10., 20.])
    """
    _check_rate(per_second)
    return _after_zero(np.full(max(count - 1, 0), 1000.0 / per_second), count)


def poisson_ms(
    count: int, per_second: float, seed: int = 42
) -> Float[np.ndarray, " arrivals"]:
    """Independent arrivals, equal to the reference's for the same seed.

    gap = -(1000 / per_second) * ln(1 - u), u uniform in [0, 1).

    >>> poisson_ms(3, per_second=40.0).round(3)
    array([ 0.   , 18.693, 38.255])
    """
    _check_rate(per_second)
    left = 1.0 - uniforms(seed, max(count - 1, 0))
    # NumPy's vectorised logarithm differs from the plain one in the last bit.
    logs = np.fromiter(map(math.log, left.tolist()), np.float64, left.size)
    return _after_zero(-(1000.0 / per_second) * logs, count)


def gamma_ms(
    count: int, per_second: float, burstiness: float = 1.0, seed: int = 42
) -> Float[np.ndarray, " arrivals"]:
    """Arrivals with gamma distributed gaps of mean 1000 / per_second.

    burstiness: the shape, 1 / (coefficient of variation of the gaps)^2, > 0: 1 is
    Poisson (other draws than `poisson_ms`), below 1 comes in bursts.

    >>> gamma_ms(3, per_second=40.0, burstiness=0.25).size
    3
    """
    _check_rate(per_second)
    if not burstiness > 0:
        raise InvalidInputError(
            f"burstiness={burstiness} must be above 0; 1 gives Poisson arrivals"
        )
    draw = np.random.default_rng(seed)
    gaps = draw.gamma(burstiness, 1000.0 / per_second / burstiness, max(count - 1, 0))
    return _after_zero(gaps, count)


def _check_rate(per_second: float) -> None:
    if not (per_second > 0 and math.isfinite(1000.0 / per_second)):
        raise InvalidInputError(
            f"per_second={per_second} must be above 0; give the arrivals per second"
        )


def _after_zero(
    gaps_ms: Float[np.ndarray, " gaps"], count: int
) -> Float[np.ndarray, " arrivals"]:
    return np.concatenate([[0.0], np.cumsum(gaps_ms)])[:count]
