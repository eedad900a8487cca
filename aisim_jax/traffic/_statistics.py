"""What a workload is like, in a few figures."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ._workload import Workload


class WorkloadStatistics(NamedTuple):
    """Lengths in tokens, instants in ms; NaN where there is nothing to tell.

    gap_cv: standard deviation / mean of the gaps between arrivals; 1 = Poisson.
    reuse_bound: share of prompt tokens whose leading blocks occur in an earlier row; an
    infinite cache with everything finished in time would reuse them.
    """

    requests: int
    sessions: int
    mean_isl_tokens: float
    max_isl_tokens: int
    mean_osl_tokens: float
    max_osl_tokens: int
    span_ms: float
    mean_gap_ms: float
    gap_cv: float
    sharing_an_instant: int
    reuse_bound: float


def workload_statistics(
    workload: Workload, block_size: int | None = None
) -> WorkloadStatistics:
    """Statistics of a workload of one request or more; reuse in blocks of block_size.

    Without a block_size the reuse bound is left out: it costs an id for every block.
    """
    isl, osl = workload.isl_tokens, workload.osl_tokens
    first = workload.turn == 0
    span = mean_gap = cv = np.nan
    sharing = 0
    if workload.max_in_flight is None:
        arrivals = np.sort(workload.arrival_ms[first])
        span = float(arrivals[-1] - arrivals[0])
        gaps = np.diff(arrivals)
        if span > 0:
            mean_gap = float(gaps.mean())
            cv = float(gaps.std()) / mean_gap
        held = np.unique(arrivals, return_counts=True)[1]
        sharing = int(held[held > 1].sum())
    return WorkloadStatistics(
        requests=workload.size,
        sessions=int(first.sum()),
        mean_isl_tokens=float(isl.mean()),
        max_isl_tokens=int(isl.max()),
        mean_osl_tokens=float(osl.mean()),
        max_osl_tokens=int(osl.max()),
        span_ms=span,
        mean_gap_ms=mean_gap,
        gap_cv=cv,
        sharing_an_instant=sharing,
        reuse_bound=np.nan if block_size is None else _reuse(workload, block_size),
    )


def _reuse(workload: Workload, block_size: int) -> float:
    """Share of prompt tokens in full blocks that an earlier row holds."""
    isl = workload.isl_tokens
    keys = workload.contents.block_keys(isl, workload.osl_tokens, block_size)
    held = np.diff(keys.start)
    row = np.repeat(np.arange(held.size, dtype=np.int32), held)
    within = np.arange(keys.ids.size) - np.repeat(keys.start[:-1], held)
    earliest = np.empty(keys.distinct, np.int32)
    earliest[keys.ids[::-1]] = row[::-1]  # the last write is the earliest row
    prompt = within < np.repeat(isl // block_size, held)
    reused = prompt & (earliest[keys.ids] < row)
    return float(reused.sum() * block_size / isl.sum(dtype=np.int64))
