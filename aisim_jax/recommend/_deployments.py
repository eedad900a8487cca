"""Candidate deployments as arrays, aggregated and disaggregated in one shape."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Integer

from aisim_jax.kernels import compose_disaggregated

from ._experiment import Experiment
from ._points import AggregatedPoints, RolePoints
from ._selection import rounded, table_order


Values = Float[np.ndarray, " cands"]
Counts = Integer[np.ndarray, " cands"]


class Deployments(NamedTuple):
    """Deployments of one experiment: what they are made of and what they deliver.

    `point` indexes the aggregated points (or the decode rows), `prefill` the prefill
    rows (-1 where aggregated); `group` is the layout that competes as one (the decode
    pool's where disaggregated); `gpus` counts one replica.
    """

    point: Counts
    prefill: Counts
    prefill_workers: Counts
    decode_workers: Counts
    group: Counts
    gpus: Counts
    concurrency: Values
    ttft_ms: Values
    tpot_ms: Values
    request_latency_ms: Values
    requests_per_s: Values
    tokens_per_s: Values
    tokens_per_s_per_gpu: Values
    tokens_per_s_per_user: Values

    def take(self, rows: np.ndarray) -> Deployments:
        """The deployments at `rows` (indices or a mask)."""
        return Deployments(*(column[rows] for column in self))

    @property
    def size(self) -> int:
        """How many there are."""
        return self.point.size


def from_points(points: AggregatedPoints, chosen: Counts) -> Deployments:
    """One aggregated worker per replica, for the points at indices `chosen`."""
    none = np.full(chosen.size, -1)
    return Deployments(
        point=chosen,
        prefill=none,
        prefill_workers=np.zeros(chosen.size, np.int64),
        decode_workers=np.ones(chosen.size, np.int64),
        group=points.layout[chosen],
        gpus=points.gpus[chosen],
        concurrency=points.concurrency[chosen],
        ttft_ms=points.ttft_ms[chosen],
        tpot_ms=points.tpot_ms[chosen],
        request_latency_ms=points.request_latency_ms[chosen],
        requests_per_s=points.requests_per_s[chosen],
        tokens_per_s=points.tokens_per_s[chosen],
        tokens_per_s_per_gpu=points.tokens_per_s_per_gpu[chosen],
        tokens_per_s_per_user=points.tokens_per_s_per_user[chosen],
    )


def from_pairs(
    question: Experiment,
    prefill: RolePoints,
    decode: RolePoints,
    prefill_row: Counts,
    decode_row: Counts,
    prefill_workers: Counts,
    decode_workers: Counts,
) -> Deployments:
    """Matched pools of P prefill and D decode workers."""
    metrics = compose_disaggregated(
        prefill.ttft_ms[prefill_row],
        decode.tpot_ms[decode_row],
        prefill.requests_per_s[prefill_row],
        decode.requests_per_s[decode_row],
        prefill_workers,
        decode_workers,
        question.osl - 1.0,
        question.parameters.roles,
    )
    gpus = (
        prefill.gpus[prefill_row] * prefill_workers
        + decode.gpus[decode_row] * decode_workers
    )
    tokens_per_s = metrics.requests_per_s * question.osl
    return Deployments(
        point=decode_row,
        prefill=prefill_row,
        prefill_workers=prefill_workers,
        decode_workers=decode_workers,
        group=decode.layout[decode_row],
        gpus=gpus,
        concurrency=decode.concurrency[decode_row] * decode_workers,
        ttft_ms=metrics.ttft_ms,
        tpot_ms=decode.tpot_ms[decode_row],
        request_latency_ms=metrics.request_latency_ms,
        requests_per_s=metrics.requests_per_s,
        tokens_per_s=tokens_per_s,
        tokens_per_s_per_gpu=tokens_per_s / gpus,
        tokens_per_s_per_user=decode.tokens_per_s_per_user[decode_row],
    )


def table_precision(found: Deployments) -> Deployments:
    """Latencies and rates with the three decimals of the compatible table."""
    return Deployments(
        *(rounded(column) if column.dtype.kind == "f" else column for column in found)
    )


def as_table(found: Deployments) -> Deployments:
    """The compatible table: three decimals, best rate per GPU first."""
    table = table_precision(found)
    return table.take(table_order(table.tokens_per_s_per_gpu))
