"""The axes of the sweep: batch sizes, context budgets and latency targets."""

from __future__ import annotations

import math
from typing import NamedTuple

from .._errors import InvalidInputError


AGGREGATED_BATCHES = (
    *range(1, 16),
    *range(16, 32, 4),
    *range(32, 64, 8),
    *range(64, 256, 16),
    *range(256, 513, 32),
)
DECODE_BATCHES = (
    *range(1, 16),
    *range(16, 32, 2),
    *range(32, 128, 4),
    *range(128, 513, 8),
)
TPOT_TARGETS_MS = (*range(1, 20), *range(20, 300, 5))

_FIRST_TOKEN_TARGETS_MS = (
    300.0,
    400.0,
    500.0,
    600.0,
    800.0,
    1000.0,
    1200.0,
    1400.0,
    1600.0,
    2000.0,
    3000.0,
    5000.0,
    8000.0,
)
_FIRST_TOKEN_SHARES = (0.1, 0.2, 0.3, 0.5, 0.7)
_CONTEXT_REACH_TOKENS = 8192
_SMALLEST_LONG_STRIDE_TOKENS = 1024


class Target(NamedTuple):
    """One pair of latency limits in ms."""

    ttft_ms: float
    tpot_ms: float


def aggregated_batches(max_batch: int) -> tuple[int, ...]:
    """Batch sizes per attention-DP rank of the aggregated grid, ascending."""
    return tuple(b for b in AGGREGATED_BATCHES if b <= max_batch)


def decode_batches(max_batch: int) -> tuple[int, ...]:
    """Batch sizes per attention-DP rank of a decode worker, ascending."""
    return tuple(b for b in DECODE_BATCHES if b <= max_batch)


def context_budgets(isl: int, stride_tokens: int, chunked: bool) -> tuple[int, ...]:
    """Context tokens of one mixed step to try, ascending.

    A fine stride up to 8192 tokens, a long one beyond, and always one and two whole
    prompts. Without chunked prefill both strides are whole prompts (`isl` tokens).
    """
    reach = max(_CONTEXT_REACH_TOKENS, 2 * isl)
    stride = stride_tokens
    long_stride = max(_SMALLEST_LONG_STRIDE_TOKENS, stride_tokens, reach // 8)
    if not chunked:
        stride = max(isl, stride_tokens)
        long_stride = math.ceil(long_stride / isl) * isl
    budgets = {isl, 2 * isl}
    tokens = stride
    while tokens <= reach:
        budgets.add(tokens)
        tokens += stride if tokens < _CONTEXT_REACH_TOKENS else long_stride
    return tuple(sorted(budgets))


def latency_targets(
    osl: int, ttft_ms: float | None, request_latency_ms: float
) -> tuple[Target, ...]:
    """(TTFT, TPOT) pairs that split a request latency of `request_latency_ms`.

    tpot = (latency - ttft) / (osl - 1) for a fixed ladder of first-token times, shares
    of the latency outside that ladder, and the user's own TTFT (default 95 %).
    """
    if osl <= 1:
        raise InvalidInputError(
            f"osl={osl}: a request-latency target of {request_latency_ms} ms needs at "
            "least 2 output tokens; raise osl or give ttft and tpot instead"
        )
    low, high = _FIRST_TOKEN_TARGETS_MS[0], _FIRST_TOKEN_TARGETS_MS[-1]
    shares = [request_latency_ms * share for share in _FIRST_TOKEN_SHARES]
    own = 0.95 * request_latency_ms if ttft_ms is None else ttft_ms
    candidates = {
        *_FIRST_TOKEN_TARGETS_MS,
        *(share for share in shares if not low <= share <= high),
        own,
    }
    return tuple(
        Target(first, (request_latency_ms - first) / (osl - 1))
        for first in sorted(candidates)
        if first < request_latency_ms
    )


def tpot_targets(ttft_ms: float) -> tuple[Target, ...]:
    """The 75 TPOT targets at one TTFT limit."""
    return tuple(Target(ttft_ms, float(tpot)) for tpot in TPOT_TARGETS_MS)
