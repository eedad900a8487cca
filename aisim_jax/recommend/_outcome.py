"""Why an experiment has no answer: one sentence with the numbers that matter."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool

from aisim_jax._units import GIB

from ._evaluation import Evaluation
from ._experiment import Experiment
from ._pairs import pairable
from ._points import AggregatedPoints, RolePoints
from ._reasons import Reason


Cause = Literal["no_layout", "no_data", "memory", "kv", "gpus", "latency"]


class Failure(NamedTuple):
    """Why an experiment has no answer: the class of reason and one sentence."""

    cause: Cause
    sentence: str


def describe_failure(question: Experiment, evaluation: Evaluation) -> Failure:
    """The first reason that applies: no layout, no data, memory, KV room, GPUs, limits."""
    place = f"{question.model} on {question.system} with {question.backend}"
    for role, pool in evaluation.pools.items():
        if pool.lanes.size == 0:
            return Failure("no_layout", _no_layout(question, role, evaluation, place))
    for role in evaluation.pools:
        failure = _nothing_fits(role, evaluation.table(role), evaluation, place)
        if failure is not None:
            return failure
    return _missed_limits(question, evaluation, place)


def _no_layout(
    question: Experiment, role: str, evaluation: Evaluation, place: str
) -> str:
    rejected = evaluation.pools[role].rejected
    if rejected:
        return (
            f"{place}: no {role} layout can be built: {next(iter(rejected.values()))}"
        )
    return (
        f"{place}: no {role} layout fits {question.total_gpus} GPUs; raise the GPU "
        "budget or widen the candidate sizes"
    )


def _nothing_fits(
    role: str,
    points: AggregatedPoints | RolePoints,
    evaluation: Evaluation,
    place: str,
) -> Failure | None:
    """A failure of data or memory, when no point of `role` passes both."""
    passed = points.reason == Reason.MEETS
    if passed.any():
        return None
    priced = points.reason != Reason.NO_DATA
    if not priced.any():
        errors = [e for e in evaluation.pools[role].surfaces.prices.errors if e]
        why = errors[0] if errors else "its tables do not reach these sizes"
        return Failure("no_data", f"{place}: no {role} point has a price: {why}")
    cause, code = ("kv", Reason.KV_ROOM)
    if not (points.reason == code).any():
        cause, code = ("memory", Reason.MEMORY)
    rows = np.flatnonzero(points.reason == code)
    row = rows[np.argmin(points.missing_gib[rows])]
    layout = evaluation.layouts(role)[points.layout[row]]
    lacks = (
        f"{layout.label} with batch {points.batch[row]:.0f} lacks "
        f"{points.missing_gib[row]:.2f} GiB "
        f"({np.ceil(points.missing_gib[row] * GIB):.0f} bytes) per GPU"
    )
    if cause == "kv":
        sentence = (
            f"{place}: no {role} point leaves room for its KV cache; the closest, {lacks}; "
            "use more GPUs per worker, shorter requests or a larger memory fraction"
        )
    else:
        sentence = (
            f"{place}: no {role} point fits in memory; the closest, {lacks}; use more "
            "GPUs per worker, lower precision or GPUs with more memory"
        )
    return Failure(cause, sentence)


def _missed_limits(question: Experiment, evaluation: Evaluation, place: str) -> Failure:
    if evaluation.aggregated is not None:
        points = evaluation.aggregated
        usable = points.reason == Reason.MEETS
        ttft_ms, tpot_ms = points.ttft_ms[usable].min(), points.tpot_ms[usable].min()
        latency_ms = points.request_latency_ms[usable].min()
    else:
        prefill, decode = evaluation.table("prefill"), evaluation.table("decode")
        p_good, d_good = prefill.reason == Reason.MEETS, decode.reason == Reason.MEETS
        smallest = _smallest_replica(question, evaluation, p_good, d_good)
        if smallest > (question.max_replica_gpus or question.total_gpus):
            return Failure(
                "gpus",
                f"{place}: the smallest prefill and decode workers that fit in memory "
                f"and can work together need {smallest:.0f} GPUs; give at least "
                f"{smallest:.0f} GPUs or serve aggregated",
            )
        correction = question.parameters.ttft_correction
        ttft_ms = correction * prefill.ttft_ms[p_good].min()
        tpot_ms = decode.tpot_ms[d_good].min()
        latency_ms = ttft_ms + tpot_ms * (question.osl - 1)
    if question.request_latency_ms is not None:
        limit = f"a request latency of {question.request_latency_ms:g} ms"
        best = f"the best reaches {latency_ms:.1f} ms"
    else:
        first = "" if question.ttft_ms is None else f"TTFT {question.ttft_ms:g} ms and "
        limit = f"{first}TPOT {question.tpot_ms:g} ms"
        best = f"the best reach TTFT {ttft_ms:.1f} ms and TPOT {tpot_ms:.2f} ms"
    return Failure(
        "latency",
        f"{place}: no {question.serving_mode} deployment meets {limit}; {best} "
        "(not necessarily together); relax the limit or use more GPUs per worker",
    )


def _smallest_replica(
    question: Experiment,
    evaluation: Evaluation,
    p_good: Bool[np.ndarray, " prefill"],
    d_good: Bool[np.ndarray, " decode"],
) -> float:
    """GPUs of the smallest pair of workers that can hand a cache over; inf if none."""
    prefill, decode = evaluation.table("prefill"), evaluation.table("decode")
    layouts = evaluation.layouts("prefill"), evaluation.layouts("decode")
    node_gpus = evaluation.pools["prefill"].surfaces.pool.tables.spec.gpus_per_node
    handover = pairable(question, *layouts, node_gpus)
    d_layout, p_layout = decode.layout[d_good], prefill.layout[p_good]
    total = decode.gpus[d_good][:, None] + prefill.gpus[p_good]
    pairs = np.where(handover[np.ix_(d_layout, p_layout)], total, np.inf)
    return float(pairs.min(initial=np.inf))
