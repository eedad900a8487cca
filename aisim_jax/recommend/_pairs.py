"""Prefill and decode rows to deployments: by the compatible cuts, or all of them."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Integer

from aisim_jax.models import Layout

from ._deployments import Deployments, as_table, from_pairs
from ._disaggregation import RoleRows, kept_pairs
from ._experiment import Experiment
from ._points import RolePoints
from ._rate_matching import ReplicaLimits, match_workers
from ._reasons import Reason


Rows = Integer[np.ndarray, " rows"]


def replica_limits(
    question: Experiment, *, compat: bool, large_ep: bool
) -> ReplicaLimits:
    """Replica shapes to try; only the compatible sweep restricts the GPU totals.

    Expert groups beyond one node (`large_ep`) lift its restriction.
    """
    parameters = question.parameters
    asked = question.max_replica_gpus or question.total_gpus
    most = (
        parameters.max_large_ep_replica_gpus
        if large_ep
        else parameters.max_replica_gpus
    )
    return ReplicaLimits(
        max_prefill_workers=parameters.max_prefill_workers,
        max_decode_workers=parameters.max_decode_workers,
        max_gpus=min(asked, most) if compat else asked,
        gpus=parameters.replica_gpus if compat and not large_ep else None,
        max_prefill_gpus=question.max_prefill_gpus,
        max_decode_gpus=question.max_decode_gpus,
    )


def pairable(
    question: Experiment,
    prefill: tuple[Layout, ...],
    decode: tuple[Layout, ...],
    node_gpus: int,
) -> Bool[np.ndarray, "decode prefill"]:
    """Which layouts can hand a cache over: SGLang wants equal tp within a node."""
    shape = (len(decode), len(prefill))
    backends = {question.backend, question.decode_backend or question.backend}
    if backends != {"sglang"}:
        return np.ones(shape, bool)
    p_tp, d_tp = ([layout.tp for layout in side] for side in (prefill, decode))
    p_wide, d_wide = (
        np.array([layout.moe_ep > node_gpus for layout in side], bool)
        for side in (prefill, decode)
    )
    equal = np.asarray(d_tp)[:, None] == np.asarray(p_tp)
    return equal | d_wide[:, None] | p_wide


def _usable(points: RolePoints) -> Rows:
    return np.flatnonzero(points.reason == Reason.MEETS)


def _labelled(points: RolePoints, rows: Rows, layouts: tuple[Layout, ...]) -> RoleRows:
    labels = np.array([layout.label for layout in layouts])
    return RoleRows(
        label=tuple(labels[points.layout[rows]].tolist()),
        gpus=points.gpus[rows],
        concurrency=points.concurrency[rows],
        ttft_ms=points.ttft_ms[rows],
        tpot_ms=points.tpot_ms[rows],
        requests_per_s=points.requests_per_s[rows],
        requests_per_s_per_gpu=points.requests_per_s_per_gpu[rows],
    )


def compatible_pairs(
    question: Experiment,
    prefill: RolePoints,
    decode: RolePoints,
    layouts: tuple[tuple[Layout, ...], ...],
    handover: Bool[np.ndarray, "decode prefill"],
    limits: ReplicaLimits,
) -> Deployments:
    """The deployments that some target keeps, as a table."""
    parameters, targets = question.parameters, question.targets()
    loosest_ms = max(target.ttft_ms for target in targets)
    p_rows, d_rows = _usable(prefill), _usable(decode)
    p_rows = p_rows[parameters.ttft_correction * prefill.ttft_ms[p_rows] < loosest_ms]
    p_table = _labelled(prefill, p_rows, layouts[0])
    d_table = _labelled(decode, d_rows, layouts[1])
    pairs = match_workers(
        p_table.requests_per_s,
        p_table.gpus,
        d_table.requests_per_s,
        d_table.gpus,
        handover[np.ix_(decode.layout[d_rows], prefill.layout[p_rows])],
        limits,
        parameters.roles,
    )
    kept = kept_pairs(p_table, d_table, pairs, targets, question.osl, parameters)
    p_kept, d_kept = np.array(kept, np.int64).reshape(-1, 2).T
    found = from_pairs(
        question,
        prefill,
        decode,
        p_rows[p_kept],
        d_rows[d_kept],
        pairs.prefill_workers[d_kept, p_kept],
        pairs.decode_workers[d_kept, p_kept],
    )
    return as_table(found)


def complete_pairs(
    question: Experiment,
    prefill: RolePoints,
    decode: RolePoints,
    handover: Bool[np.ndarray, "decode prefill"],
    limits: ReplicaLimits,
    *,
    charge_idle: bool,
) -> Deployments:
    """Every decode row with the best prefill worker of each size.

    Among prefill workers of one GPU count and hand-over class only the fastest that
    meets the TTFT limit can be part of the best deployment. `charge_idle` counts the
    GPUs of the budget that no replica fills when it chooses the worker counts.
    """
    parameters = question.parameters
    p_rows, d_rows = _usable(prefill), _usable(decode)
    if question.request_latency_ms is None and question.ttft_ms is not None:
        meets = parameters.ttft_correction * prefill.ttft_ms[p_rows] <= question.ttft_ms
        p_rows = p_rows[meets]
    p_rows = _fastest_of_each_size(question, prefill, p_rows, handover)
    pairs = match_workers(
        prefill.requests_per_s[p_rows],
        prefill.gpus[p_rows],
        decode.requests_per_s[d_rows],
        decode.gpus[d_rows],
        handover[np.ix_(decode.layout[d_rows], prefill.layout[p_rows])],
        limits,
        parameters.roles,
        budget_gpus=question.total_gpus if charge_idle else None,
    )
    d_kept, p_kept = np.nonzero(np.isfinite(pairs.requests_per_s))
    return from_pairs(
        question,
        prefill,
        decode,
        p_rows[p_kept],
        d_rows[d_kept],
        pairs.prefill_workers[d_kept, p_kept],
        pairs.decode_workers[d_kept, p_kept],
    )


def _fastest_of_each_size(
    question: Experiment,
    prefill: RolePoints,
    rows: Rows,
    handover: Bool[np.ndarray, "decode prefill"],
) -> Integer[np.ndarray, " kept"]:
    """Best prefill rows per (GPUs, hand-over class).

    Under a request-latency target a slower pool with a shorter prefill can win, so the
    (rate, latency) frontier of each class stays instead of its fastest row.
    """
    _, partners = np.unique(handover, axis=1, return_inverse=True)
    kind = np.stack([prefill.gpus[rows], partners.ravel()[prefill.layout[rows]]])
    order = np.lexsort((prefill.ttft_ms[rows], -prefill.requests_per_s[rows], *kind))
    rows, kind = rows[order], kind[:, order]
    first = np.any(np.diff(kind, axis=1, prepend=-1) != 0, axis=0)
    if question.request_latency_ms is None:
        return rows[first]
    keep = np.zeros(rows.size, bool)
    best_ms = np.inf
    for place, (row, starts) in enumerate(zip(rows, first, strict=True)):
        best_ms = np.inf if starts else best_ms
        keep[place] = prefill.ttft_ms[row] < best_ms
        best_ms = min(best_ms, prefill.ttft_ms[row])
    return rows[keep]
