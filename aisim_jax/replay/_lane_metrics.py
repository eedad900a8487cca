"""Figures of many scenarios at once, without the distribution of single gaps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..traffic import Workload
from ._deployment import Deployment
from ._goodput import Bounds, within_bounds
from ._metrics import gpu_count
from ._outcome import REJECTED, Replayed
from ._samples import completed_samples, present
from ._statistics import nearest_rank
from ._telemetry import duration_ms


class LaneMetrics(NamedTuple):
    """One entry a scenario; ms, tokens/s of virtual time; NaN where nothing completed.

    mean_itl_ms is exact, from totals. Goodput fields are NaN without bounds.
    """

    completed_requests: Int[np.ndarray, " lanes"]
    rejected_requests: Int[np.ndarray, " lanes"]
    preemptions: Int[np.ndarray, " lanes"]
    gpus: Int[np.ndarray, " lanes"]
    duration_ms: Float[np.ndarray, " lanes"]
    request_throughput_rps: Float[np.ndarray, " lanes"]
    output_throughput_tok_s: Float[np.ndarray, " lanes"]
    total_throughput_tok_s: Float[np.ndarray, " lanes"]
    prefix_cache_reused_ratio: Float[np.ndarray, " lanes"]
    mean_ttft_ms: Float[np.ndarray, " lanes"]
    p90_ttft_ms: Float[np.ndarray, " lanes"]
    p99_ttft_ms: Float[np.ndarray, " lanes"]
    mean_tpot_ms: Float[np.ndarray, " lanes"]
    p90_tpot_ms: Float[np.ndarray, " lanes"]
    p99_tpot_ms: Float[np.ndarray, " lanes"]
    mean_e2e_latency_ms: Float[np.ndarray, " lanes"]
    p90_e2e_latency_ms: Float[np.ndarray, " lanes"]
    p99_e2e_latency_ms: Float[np.ndarray, " lanes"]
    mean_itl_ms: Float[np.ndarray, " lanes"]
    goodput_completed_requests: Float[np.ndarray, " lanes"]
    goodput_request_throughput_rps: Float[np.ndarray, " lanes"]
    goodput_output_throughput_tok_s: Float[np.ndarray, " lanes"]


COUNTS = ("completed_requests", "rejected_requests", "preemptions", "gpus")


def lane_metrics(
    replayed: Sequence[Replayed],
    scenarios: Sequence[tuple[Workload, Deployment]],
    bounds: Bounds | None = None,
) -> LaneMetrics:
    """Figures of every scenario, in order."""
    rows = [
        _figures(one, *scenario, bounds)
        for one, scenario in zip(replayed, scenarios, strict=True)
    ]
    table = np.array(rows, float).reshape(len(rows), len(LaneMetrics._fields))
    return LaneMetrics(
        *(
            column.astype(np.int64) if name in COUNTS else column
            for name, column in zip(LaneMetrics._fields, table.T, strict=True)
        )
    )


def _figures(
    replayed: Replayed,
    workload: Workload,
    deployment: Deployment,
    bounds: Bounds | None,
) -> tuple[float, ...]:
    samples = completed_samples(replayed, workload)
    completed = int(np.count_nonzero(samples.completed))
    lasted_ms = duration_ms(replayed)
    per_s = 1000 / lasted_ms if lasted_ms > 0 else 0.0
    isl, output = int(samples.isl_tokens.sum()), int(samples.output_tokens.sum())
    reused = int(replayed.reused_tokens[samples.completed].sum(dtype=np.int64))
    tpot = present(samples.tpot_ms)
    good: tuple[float, ...] = (np.nan, np.nan, np.nan)
    if bounds is not None:
        met = within_bounds(samples, bounds)
        number = int(np.count_nonzero(met))
        good = (number, number * per_s, int(samples.output_tokens[met].sum()) * per_s)
    return (
        completed,
        int(np.count_nonzero(replayed.status == REJECTED)),
        replayed.preemptions,
        gpu_count(deployment),
        lasted_ms,
        completed * per_s,
        output * per_s,
        (isl + output) * per_s,
        reused / isl if isl else 0.0,
        *_mean_and_tails(present(samples.ttft_ms)),
        *_mean_and_tails(tpot),
        *_mean_and_tails(present(samples.e2e_ms)),
        samples.mean_itl_ms if tpot.size else np.nan,
        *good,
    )


def _mean_and_tails(values: Float[np.ndarray, " samples"]) -> tuple[float, ...]:
    """Mean, p90 and p99."""
    if not values.size:
        return (np.nan, np.nan, np.nan)
    ranks = [nearest_rank(values.size, percent) for percent in (90, 99)]
    tails = np.partition(values, ranks)[ranks]
    return (float(values.mean()), float(tails[0]), float(tails[1]))
