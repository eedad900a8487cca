"""Why an experiment has no answer: one sentence with the numbers that matter."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from ._evaluation import Evaluation
from ._experiment import Experiment
from ._points import AggregatedPoints, RolePoints
from ._reasons import Reason


Cause = Literal["no_layout", "no_data", "memory", "kv", "gpus", "latency"]
GIB = 2**30


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
    for role, points in _tables(evaluation).items():
        failure = _nothing_fits(role, points, evaluation, place)
        if failure is not None:
            return failure
    return _missed_limits(question, evaluation, place)


def _tables(evaluation: Evaluation) -> dict[str, AggregatedPoints | RolePoints]:
    tables = {
        "agg": evaluation.aggregated,
        "prefill": evaluation.prefill,
        "decode": evaluation.decode,
    }
    return {role: table for role, table in tables.items() if table is not None}


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
    passed = ~np.isin(points.reason, (Reason.NO_DATA, Reason.MEMORY, Reason.KV_ROOM))
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
    if question.serving_mode == "agg":
        assert evaluation.aggregated is not None
        points = evaluation.aggregated
        usable = points.reason == Reason.MEETS
        ttft_ms, tpot_ms = points.ttft_ms[usable].min(), points.tpot_ms[usable].min()
        latency_ms = points.request_latency_ms[usable].min()
    else:
        assert evaluation.prefill is not None and evaluation.decode is not None
        p_good = evaluation.prefill.reason == Reason.MEETS
        d_good = evaluation.decode.reason == Reason.MEETS
        smallest = int(
            evaluation.prefill.gpus[p_good].min() + evaluation.decode.gpus[d_good].min()
        )
        if smallest > (question.max_replica_gpus or question.total_gpus):
            return Failure(
                "gpus",
                f"{place}: the smallest prefill and decode workers that fit in memory "
                f"need {smallest} GPUs together; give at least {smallest} GPUs or serve "
                "aggregated",
            )
        ttft_ms = (
            question.parameters.ttft_correction
            * evaluation.prefill.ttft_ms[p_good].min()
        )
        tpot_ms = evaluation.decode.tpot_ms[d_good].min()
        latency_ms = ttft_ms + tpot_ms * (question.osl - 1)
    if question.request_latency_ms is not None:
        limit = f"a request latency of {question.request_latency_ms:g} ms"
        best = f"the best reaches {latency_ms:.1f} ms"
    else:
        limit = f"TTFT {question.ttft_ms:g} ms and TPOT {question.tpot_ms:g} ms"
        best = f"the best reach TTFT {ttft_ms:.1f} ms and TPOT {tpot_ms:.2f} ms"
    return Failure(
        "latency",
        f"{place}: no {question.serving_mode} deployment meets {limit}; {best} "
        "(not necessarily together); relax the limit or use more GPUs per worker",
    )
