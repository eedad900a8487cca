"""Mean, extremes, spread and percentiles of one latency, exact or as the reference bins."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float


PERCENTS = {"median": 50, "p75": 75, "p90": 90, "p95": 95, "p99": 99}

# Bins of the reference's streaming histogram: relative accuracy 0.001.
GAMMA = 1.001 / 0.999
ZERO_BIN = 1e-9


class Statistics(NamedTuple):
    """Figures of one quantity in its own unit; all 0 when there is no sample."""

    mean: float
    min: float
    max: float
    std: float
    median: float
    p75: float
    p90: float
    p95: float
    p99: float


NO_SAMPLE = Statistics(*[0.0] * len(Statistics._fields))


def nearest_rank(count: int, percent: int) -> int:
    """Index into the sorted samples: round((count - 1) percent / 100), halves up."""
    return ((count - 1) * percent + 50) // 100


def percentiles(
    values: Float[np.ndarray, " samples"],
) -> dict[str, float]:
    """Exact percentiles by nearest rank; at least one sample."""
    ranks = [nearest_rank(values.size, percent) for percent in PERCENTS.values()]
    ordered = np.partition(values, sorted(set(ranks)))
    return dict(zip(PERCENTS, ordered[ranks].tolist(), strict=True))


def binned(value: float) -> float:
    """What a logarithmic histogram answers for a percentile whose exact value is `value`.

    Bin k = ceil(ln x / ln gamma) is represented by 2 gamma^k / (gamma + 1); bins keep the
    order of values, so binning the exact percentile is the percentile of the bins.
    """
    if value <= ZERO_BIN:
        return 0.0
    k = np.ceil(np.log(value) / np.log(GAMMA))
    return float(2 * GAMMA**k / (GAMMA + 1))


def statistics(
    values: Float[np.ndarray, " samples"], *, histogram: bool = False
) -> Statistics:
    """Figures of `values`; std is the population's.

    histogram: percentiles as the reference's histogram reports them, within 0.1 %.
    """
    if not values.size:
        return NO_SAMPLE
    ranked = percentiles(values)
    if histogram:
        ranked = {name: binned(value) for name, value in ranked.items()}
    return Statistics(
        mean=float(values.mean()),
        min=float(values.min()),
        max=float(values.max()),
        std=float(values.std()),
        **ranked,
    )
