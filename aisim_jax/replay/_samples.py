"""Latencies of the completed requests, one sample each, and of their single tokens."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ..traffic import Workload
from ._outcome import COMPLETED, Replayed, TokenTimes


class Samples(NamedTuple):
    """Completed requests, in index order; ms and tokens. NaN where there is no value.

    ttft: first token - arrival. ttst: second - first token. tpot: mean gap, for two
    tokens and more. e2e: last token - arrival.
    """

    completed: Bool[np.ndarray, " reqs"]
    isl_tokens: Int[np.ndarray, " samples"]
    output_tokens: Int[np.ndarray, " samples"]
    ttft_ms: Float[np.ndarray, " samples"]
    ttst_ms: Float[np.ndarray, " samples"]
    tpot_ms: Float[np.ndarray, " samples"]
    e2e_ms: Float[np.ndarray, " samples"]

    @property
    def mean_itl_ms(self) -> float:
        """Mean over all single gaps, from totals: sum(last - first) / sum(n - 1)."""
        gaps = np.maximum(self.output_tokens - 1, 0)
        total = int(gaps.sum(dtype=np.int64))
        spent = np.where(gaps > 0, self.tpot_ms * gaps, 0.0)
        return float(spent.sum()) / total if total else 0.0


def completed_samples(replayed: Replayed, workload: Workload) -> Samples:
    """Latencies of the requests that completed."""
    done = replayed.status == COMPLETED
    arrival, first = replayed.arrival_ms[done], replayed.first_token_ms[done]
    last = replayed.last_token_ms[done]
    output = replayed.output_tokens[done].astype(np.int64)
    gaps = np.maximum(output - 1, 0)
    tpot = np.where(gaps > 0, (last - first) / np.maximum(gaps, 1), np.nan)
    return Samples(
        completed=done,
        isl_tokens=workload.isl_tokens[done].astype(np.int64),
        output_tokens=output,
        ttft_ms=first - arrival,
        ttst_ms=np.where(gaps > 0, replayed.second_token_ms[done] - first, np.nan),
        tpot_ms=tpot,
        e2e_ms=last - arrival,
    )


def present(values: Float[np.ndarray, " samples"]) -> Float[np.ndarray, " present"]:
    """The samples that have a value."""
    missing = np.isnan(values)
    return values[~missing] if missing.any() else values


def token_gaps_ms(
    times: TokenTimes, completed: Bool[np.ndarray, " reqs"]
) -> Float[np.ndarray, " gaps"]:
    """Gaps between consecutive tokens of the same completed request."""
    if times.at_ms.size < 2:
        return np.zeros(0)
    counts = np.diff(times.start)
    within = np.repeat(completed, counts)[1:]
    gaps = np.diff(times.at_ms)
    # The gap in front of a request's first token joins it to the request before.
    firsts = times.start[:-1][(counts > 0) & (times.start[:-1] > 0)]
    within[firsts - 1] = False
    return gaps[within]
