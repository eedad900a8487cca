"""How many steps of which kind one batch takes: exact integers, as float64 data."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from aisim_jax.kernels import StepCounts, XpuSchedule

from ._parameters import SchedulePolicy


Points = Float[np.ndarray, "*pts"]


class Schedule(NamedTuple):
    """Step counts of aggregated points and the decode requests of either step kind."""

    steps: StepCounts
    mixed_requests: Points  # g, decoding requests inside a mixed step
    decode_requests: Points  # requests of a decode-only step
    context_requests: Points  # ceil(ctx / isl)
    balance: Points  # isl * b / ctx / iterations


def decode_iterations(osl: int, tokens_per_step: float) -> float:
    """Decode iterations of one request: 1 + max(osl - 1, 0) / p."""
    return 1.0 + max(osl - 1, 0) / tokens_per_step


def schedule_batch(
    batch: Points,
    ctx_tokens: Points,
    isl: int,
    osl: int,
    tokens_per_step: float,
    policy: SchedulePolicy,
) -> Schedule:
    """Schedule a batch of `batch` requests (>= 1) with `ctx_tokens` per mixed step.

    `isl` effective prompt tokens (>= 1), `osl` output tokens (>= 1). The floor division
    b // (S / I) is a float64 floor division in exactly this order of operations.
    """
    iterations = decode_iterations(osl, tokens_per_step)
    prefill_steps = np.ceil(isl * batch / ctx_tokens)
    context_requests = np.ceil(ctx_tokens / isl)
    alone = batch == 1
    prefill_bound = prefill_steps >= iterations
    mixed_requests = np.maximum(1.0, batch - context_requests)
    if policy.balances_decode:
        paced = np.maximum(1.0, batch // (prefill_steps / iterations))
        mixed_requests = np.where(prefill_bound, paced, mixed_requests)
    drained = np.maximum(1.0, prefill_steps - policy.drain_steps)
    decode_steps = np.where(prefill_bound, 0.0, iterations - prefill_steps)
    steps = StepCounts(
        prefill_steps=prefill_steps,
        prompt_passes=np.ceil(isl / ctx_tokens),
        mixed_steps=np.where(alone, 1.0, prefill_steps),
        decode_steps=np.where(alone, max(iterations - 1.0, 0.0), decode_steps),
        counted_mixed_steps=np.where(
            alone, 0.0, np.where(prefill_bound, prefill_steps, drained)
        ),
    )
    return Schedule(
        steps=steps,
        mixed_requests=np.where(alone, 0.0, mixed_requests),
        decode_requests=np.where(alone, 1.0, np.where(prefill_bound, 0.0, batch)),
        context_requests=context_requests,
        balance=isl * batch / ctx_tokens / iterations,
    )


def schedule_xpu(
    schedule: Schedule,
    batch: Points,
    ctx_tokens: Points,
    isl: int,
    osl: int,
    kv_slots: Points,
) -> XpuSchedule:
    """Share a step budget between prefill and decode (Intel XPU engine).

    `kv_slots`: requests of isl + osl tokens whose KV fits beside everything else. The
    decode share of the budget is round(ctx * osl / (isl + osl)), halves to even.
    """
    share = np.maximum(1.0, np.round(ctx_tokens * osl / (isl + osl)))
    mixed = np.minimum(np.minimum(schedule.mixed_requests, share), kv_slots)
    return XpuSchedule(
        resident=np.minimum(np.minimum(batch, kv_slots), share),
        mixed_requests=mixed,
        context_tokens=np.maximum(1.0, ctx_tokens - mixed),
    )
