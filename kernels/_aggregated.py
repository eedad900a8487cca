"""Steady state of one continuously batched worker, from its two step times.

Elementwise over any shape of points, on NumPy or JAX arrays alike (the namespace of
the step times is used), differentiable in step times and constants.
"""

from __future__ import annotations

from typing import NamedTuple

from ._arrays import Flags, Values


class QueuePolicy(NamedTuple):
    """How an engine queues prompts: constants of the TTFT and throughput formulas.

    Queue factor of the first token:
    min(base + (S - steps_offset) / steps_divisor + log2(b) / log2_divisor, cap) with S
    the mixed steps that prefill a whole batch; an infinite divisor drops its term.
    """

    queue_base: Values
    queue_steps_offset: Values  # steps
    queue_steps_divisor: Values  # steps
    queue_log2_divisor: Values
    queue_cap: Values
    dispatch_ms_per_layer: Values  # added to the mixed passes of the first token
    rate_is_capped: Flags  # Little's law bounds the token rate


class StepCounts(NamedTuple):
    """Integer schedule of one batch as data (float64), see `recommend`."""

    prefill_steps: Values  # S = ceil(isl * b / ctx)
    prompt_passes: Values  # ceil(isl / ctx)
    mixed_steps: Values  # Nm
    decode_steps: Values  # Ng
    counted_mixed_steps: Values  # Nt, mixed steps that enter TPOT


class AggregatedMetrics(NamedTuple):
    """Latencies (ms) and the token rate (1/s) of one attention-DP rank and stage."""

    ttft_ms: Values
    tpot_ms: Values
    tokens_per_s: Values
    batch_ms: Values  # duration of the whole schedule


def queue_factor(prefill_steps: Values, batch: Values, policy: QueuePolicy) -> Values:
    """Multiplier of the prefill time that stands for waiting; dimensionless."""
    xp = prefill_steps.__array_namespace__()
    waiting = (
        policy.queue_base
        + (prefill_steps - policy.queue_steps_offset) / policy.queue_steps_divisor
        + xp.log2(batch) / policy.queue_log2_divisor
    )
    return xp.minimum(waiting, policy.queue_cap)


def mean_tpot_ms(
    mixed_ms: Values, decode_ms: Values, steps: StepCounts, tokens_per_step: Values
) -> Values:
    """(m * Nt + d * Ng) / (Nt + Ng) / p; zero where no step is counted."""
    xp = mixed_ms.__array_namespace__()
    counted = steps.counted_mixed_steps + steps.decode_steps
    spent_ms = mixed_ms * steps.counted_mixed_steps + decode_ms * steps.decode_steps
    mean_ms = xp.where(counted > 0, spent_ms / xp.where(counted > 0, counted, 1.0), 0.0)
    return mean_ms / tokens_per_step


def token_rate_per_s(
    batch_ms: Values,
    ttft_ms: Values,
    tpot_ms: Values,
    batch: Values,
    later_tokens: Values,
    rate_is_capped: Flags,
) -> Values:
    """Tokens per second of one rank and stage; `later_tokens` = osl - 1 per request.

    1000 / batch_ms * b * (osl - 1), at most concurrency over request latency where
    the engine's rate is capped; zero for one output token.
    """
    xp = batch_ms.__array_namespace__()
    rate = 1000.0 / batch_ms * batch * later_tokens
    request_ms = ttft_ms + tpot_ms * later_tokens
    little = batch * later_tokens * 1000.0 / request_ms
    return xp.where(rate_is_capped, xp.minimum(rate, little), rate)


def compose_aggregated(
    mixed_ms: Values,
    decode_ms: Values,
    steps: StepCounts,
    batch: Values,
    later_tokens: Values,
    tokens_per_step: Values,
    layers: Values,
    encoder_ms: Values,
    policy: QueuePolicy,
) -> AggregatedMetrics:
    """Metrics of aggregated points from a mixed and a decode-only step time.

    `batch` requests per attention-DP rank (>= 1), `later_tokens` = osl - 1 (>= 0),
    `tokens_per_step` = 1 + accepted draft tokens, times in ms (> 0 for the mixed step).

    TTFT = encoder + (m * ceil(isl / ctx) + dispatch * layers) * queue factor.
    """
    queue = queue_factor(steps.prefill_steps, batch, policy)
    dispatch_ms = policy.dispatch_ms_per_layer * layers
    ttft_ms = encoder_ms + (mixed_ms * steps.prompt_passes + dispatch_ms) * queue
    tpot_ms = mean_tpot_ms(mixed_ms, decode_ms, steps, tokens_per_step)
    batch_ms = (
        encoder_ms + steps.mixed_steps * mixed_ms + steps.decode_steps * decode_ms
    )
    rate = token_rate_per_s(
        batch_ms, ttft_ms, tpot_ms, batch, later_tokens, policy.rate_is_capped
    )
    return AggregatedMetrics(ttft_ms, tpot_ms, rate, batch_ms)
