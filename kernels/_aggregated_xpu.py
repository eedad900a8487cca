"""Steady state of one Intel XPU worker, whose step budget covers prefill and decode.

Elementwise, on NumPy or JAX arrays alike, differentiable in times and constants.
"""

from __future__ import annotations

from typing import NamedTuple

from ._aggregated import AggregatedMetrics, StepCounts, token_rate_per_s
from ._arrays import Values


class XpuQueuePolicy(NamedTuple):
    """Constants of the first-token formula."""

    dispatch_ms_per_layer: Values
    interference: Values
    log2_exponent: Values
    decode_exponent: Values


class XpuSchedule(NamedTuple):
    """What a shared step budget admits, as data (float64).

    `resident`: requests that decode together, e = min(b, KV slots, budget share).
    `mixed_requests`, `context_tokens`: decode requests and prefill tokens of a mixed
    step, g' and ctx - g'.
    """

    resident: Values
    mixed_requests: Values
    context_tokens: Values


def own_prefill_ms(
    mixed_ms: Values,
    attention_ms: Values,
    context_tokens: Values,
    isl: Values,
    layers: Values,
    policy: XpuQueuePolicy,
) -> Values:
    """Time of one prompt on its own: A ceil(isl/c) + (m - A) isl/c + dispatch * layers.

    `attention_ms` is the context attention inside the mixed step of `mixed_ms`, which
    prefills `context_tokens` tokens.
    """
    xp = mixed_ms.__array_namespace__()
    passes = isl / context_tokens
    return (
        attention_ms * xp.ceil(passes)
        + (mixed_ms - attention_ms) * passes
        + policy.dispatch_ms_per_layer * layers
    )


def compose_aggregated_xpu(
    mixed_ms: Values,
    attention_ms: Values,
    decode_ms: Values,
    decode_slowdown: Values,
    steps: StepCounts,
    schedule: XpuSchedule,
    batch: Values,
    ctx_tokens: Values,
    isl: Values,
    osl: Values,
    layers: Values,
    policy: XpuQueuePolicy,
) -> AggregatedMetrics:
    """Metrics of aggregated points; arguments as in `compose_aggregated`.

    `decode_slowdown` = decode step of b requests over that of one. A request that finds
    no slot waits for (b - e) / e earlier ones to prefill and decode.
    """
    xp = mixed_ms.__array_namespace__()
    resident = schedule.resident
    own_ms = own_prefill_ms(
        mixed_ms, attention_ms, schedule.context_tokens, isl, layers, policy
    )
    drained = steps.prefill_steps * xp.maximum(
        0.0, resident - xp.maximum(1.0, ctx_tokens / isl)
    )
    mixed_tokens = xp.minimum(drained / resident, osl)
    mixture_ms = (mixed_ms * mixed_tokens + decode_ms * (osl - mixed_tokens)) / osl
    alone = batch <= 1
    decodes = steps.decode_steps > 0
    tpot_ms = xp.where(
        alone, decode_ms, xp.where(decodes, mixture_ms, mixed_ms)
    ) * xp.where(osl > 1, 1.0, 0.0)
    prompts = xp.minimum(ctx_tokens, batch * isl) / isl
    crowd = xp.log2(xp.where(alone, 2.0, batch)) ** policy.log2_exponent
    pressure = (prompts * decode_slowdown) ** policy.decode_exponent
    shared_ms = own_ms * xp.minimum(1.0 + policy.interference * crowd * pressure, batch)
    waiting_ms = (batch - resident) / resident * (own_ms + osl * tpot_ms)
    ttft_ms = xp.where(
        alone, own_ms, xp.where(resident >= batch, shared_ms, own_ms + waiting_ms)
    )
    batch_ms = steps.mixed_steps * mixed_ms + steps.decode_steps * decode_ms
    rate = token_rate_per_s(batch_ms, ttft_ms, tpot_ms, batch, osl - 1.0, True)
    return AggregatedMetrics(ttft_ms, tpot_ms, rate, batch_ms)
