"""Prices of a role as functions to differentiate: unrounded, and of any parameter."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from .._errors import UnsupportedError
from ..estimators import OpLevelSurface
from ..kernels import Array
from ..kernels.replay import (
    DECODE_COEFFICIENTS,
    PREFILL_COEFFICIENTS,
    FixedPrice,
    FixedSteps,
    PolynomialPrice,
    PolynomialSteps,
    Price,
)
from ._deployment import Role


class SurfacePrice(Price):
    """Prices of lane `lane` of a compiled surface; rows of a request: 1 + draft tokens.

    `surface` may be `HardwareSurface.at(rates)`: derivatives flow on to the rates.
    """

    surface: OpLevelSurface
    lane: Int[Array, ""] | int = 0
    rows: Int[Array, ""] | int = 1

    def __call__(self, prefill, decode):
        def prefill_ms(requests, isl, prefix):
            return self.surface.prefill_ms(self.lane, requests, isl, prefix)

        def decode_ms(requests, context):
            rows = requests * self.rows
            return self.surface.decode_ms(self.lane, rows, context // requests)

        return (
            jnp.maximum(jax.vmap(prefill_ms)(*prefill), 0.0),
            jnp.maximum(jax.vmap(decode_ms)(*decode), 0.0),
        )


def role_price(role: Role) -> Price:
    """What the role's passes cost in a run, before rounding to nanoseconds."""
    if role.prices is not None:
        batch, lane = role.prices.batch, role.prices.lane
        return SurfacePrice(batch.surface(), lane, batch.nextn + 1)
    steps = role.steps
    if isinstance(steps, FixedSteps):
        return FixedPrice(np.array(steps.prefill / 1e6), np.array(steps.decode / 1e6))
    if isinstance(steps, PolynomialSteps):
        return PolynomialPrice(
            np.array(PREFILL_COEFFICIENTS),
            np.array(DECODE_COEFFICIENTS),
            np.array(float(steps.capacity)),
            *(
                np.array(float(speedup) or 1.0)
                for speedup in (steps.speedup, steps.decode_speedup)
            ),
        )
    raise UnsupportedError(
        f"role_price: no differentiable form of {type(steps).__name__}; pass your own "
        "function of (PrefillWork, DecodeWork) to schedule_metrics"
    )
