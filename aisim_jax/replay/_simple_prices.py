"""Prices that need no tables: constants, and the built-in polynomials."""

from __future__ import annotations

import numpy as np

from ..kernels.replay import FixedSteps, PolynomialSteps
from ._price_tables import whole_ns


def fixed_steps(prefill_ms: float, decode_ms: float) -> FixedSteps:
    """A pass costs prefill_ms if it computes prompts, plus decode_ms if it decodes."""
    prefill, decode = whole_ns(np.array([prefill_ms, decode_ms]))
    return FixedSteps(np.array(prefill), np.array(decode))


def polynomial_steps(pool_tokens: int) -> PolynomialSteps:
    """The built-in polynomials for a rank whose KV cache holds pool_tokens."""
    unscaled = np.array(0.0)
    return PolynomialSteps(np.array(pool_tokens), unscaled, unscaled)
