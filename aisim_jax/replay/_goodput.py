"""Which completed requests met their service-level bounds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from ._samples import Samples


class Bounds(NamedTuple):
    """Latency bounds of one request, ms; None = no bound. `itl` bounds its mean gap."""

    ttft_ms: float | None = None
    itl_ms: float | None = None
    e2e_ms: float | None = None


def within_bounds(samples: Samples, bounds: Bounds) -> Bool[np.ndarray, " samples"]:
    """Every bound given holds; a request of one token has no gap to bound."""
    good = np.ones(samples.ttft_ms.shape, bool)
    if bounds.ttft_ms is not None:
        good &= samples.ttft_ms <= bounds.ttft_ms
    if bounds.itl_ms is not None:
        gaps = samples.output_tokens - 1
        mean_gap = (samples.e2e_ms - samples.ttft_ms) / np.maximum(gaps, 1)
        good &= (gaps <= 0) | (mean_gap <= bounds.itl_ms)
    if bounds.e2e_ms is not None:
        good &= samples.e2e_ms <= bounds.e2e_ms
    return good
