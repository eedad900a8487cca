"""Constant or polynomial prices by a flag: one compilation for scenarios of both."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from oracle.replay_timing import Fixed

from aisim_jax.kernels.replay import FixedSteps, PolynomialSteps, Steps


class EitherSteps(Steps):
    """`fixed` > 0: constants, else polynomials."""

    fixed: np.ndarray
    constants: FixedSteps
    polynomials: PolynomialSteps

    def prefill_ns(self, requests, isl, prefix):
        return jnp.where(
            self.fixed > 0,
            self.constants.prefill_ns(requests, isl, prefix),
            self.polynomials.prefill_ns(requests, isl, prefix),
        )

    def decode_ns(self, requests, context):
        return jnp.where(
            self.fixed > 0,
            self.constants.decode_ns(requests, context),
            self.polynomials.decode_ns(requests, context),
        )


def either(timing, pool_tokens: int) -> EitherSteps:
    """Prices of an oracle timing."""
    fixed = isinstance(timing, Fixed)
    prices = (timing.prefill, timing.decode) if fixed else (0.0, 0.0)
    prefill, decode = (np.array(round(price * 1e6)) for price in prices)
    polynomials = PolynomialSteps(np.array(pool_tokens), np.array(0.0), np.array(0.0))
    return EitherSteps(np.array(int(fixed)), FixedSteps(prefill, decode), polynomials)
