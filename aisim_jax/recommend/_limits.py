"""Latency limits as reason codes, on top of data and memory."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Integer

from ._experiment import Experiment
from ._points import AggregatedPoints, RolePoints
from ._reasons import Reason


Codes = Integer[np.ndarray, " pts"]


def _marked(codes: Codes, *rules: tuple[Bool[np.ndarray, " pts"], Reason]) -> Codes:
    """`codes` with the first broken rule of every point that still meets everything."""
    codes = codes.copy()
    for broken, reason in rules:
        codes[(codes == Reason.MEETS) & broken] = reason
    return codes


def aggregated_codes(question: Experiment, points: AggregatedPoints) -> Codes:
    """Reasons of aggregated points with the question's latency limits applied."""
    if question.request_latency_ms is not None:
        slow = points.request_latency_ms > question.request_latency_ms
        return _marked(points.reason, (slow, Reason.REQUEST_LATENCY))
    late = points.ttft_ms > (np.inf if question.ttft_ms is None else question.ttft_ms)
    return _marked(
        points.reason,
        (late, Reason.TTFT),
        (points.tpot_ms > question.tpot_ms, Reason.TPOT),
    )


def role_codes(
    question: Experiment, points: RolePoints, *, decodes: bool, room_gpus: int
) -> Codes:
    """Reasons of dedicated workers; `room_gpus` is left for them in one replica."""
    crowded = points.gpus > room_gpus
    ttft_ms = question.parameters.ttft_correction * points.ttft_ms
    if question.request_latency_ms is not None:
        spent_ms = points.request_latency_ms if decodes else ttft_ms
        slow = spent_ms > question.request_latency_ms
        reason = Reason.REQUEST_LATENCY
    elif decodes:
        slow, reason = points.tpot_ms > question.tpot_ms, Reason.TPOT
    else:
        limit_ms = np.inf if question.ttft_ms is None else question.ttft_ms
        slow, reason = ttft_ms > limit_ms, Reason.TTFT
    return _marked(points.reason, (crowded, Reason.GPUS), (slow, reason))
