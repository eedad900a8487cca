"""A fixed batch run to completion, and two such workers matched into one deployment.

Elementwise, on NumPy or JAX arrays alike, differentiable in times and constants.
"""

from __future__ import annotations

from typing import NamedTuple

from ._arrays import Values


class StaticMetrics(NamedTuple):
    """Latencies (ms) and request rate (1/s) of one worker with all its ranks."""

    ttft_ms: Values
    tpot_ms: Values
    request_latency_ms: Values
    requests_per_s: Values


class RoleConstants(NamedTuple):
    """Corrections of a disaggregated deployment, dimensionless."""

    prefill_degradation: Values
    decode_degradation: Values
    ttft_correction: Values


class MatchedMetrics(NamedTuple):
    """A prefill and a decode pool together: latencies in ms, rates in 1/s."""

    ttft_ms: Values
    request_latency_ms: Values
    requests_per_s: Values


def compose_static(
    prefill_ms: Values,
    decode_ms: Values,
    concurrency: Values,
    pp: Values,
    later_tokens: Values,
) -> StaticMetrics:
    """Metrics of a static batch: prompt pass, then osl - 1 further tokens.

    `prefill_ms` >= 0 with the encoder's time inside, `decode_ms` >= 0 for all further
    tokens together (0 in a role that does not decode), `concurrency` = batch * dp,
    `later_tokens` = osl - 1.

    tpot = decode / (osl - 1); rate = concurrency / latency * 1000 * pp.
    """
    xp = prefill_ms.__array_namespace__()
    steps = xp.maximum(later_tokens, 1.0)
    tpot_ms = xp.where(later_tokens > 0, decode_ms / steps, 0.0)
    latency_ms = prefill_ms + tpot_ms * xp.maximum(later_tokens, 0.0)
    idle = latency_ms <= 0
    rate = concurrency / xp.where(idle, 1.0, latency_ms) * 1000.0 * pp
    return StaticMetrics(prefill_ms, tpot_ms, latency_ms, xp.where(idle, 0.0, rate))


def speculate_decode(metrics: StaticMetrics, tokens_per_step: Values) -> StaticMetrics:
    """Project a decode worker priced with one token per step to `tokens_per_step`."""
    tpot_ms = metrics.tpot_ms / tokens_per_step
    saved_ms = metrics.request_latency_ms - metrics.ttft_ms
    return StaticMetrics(
        metrics.ttft_ms,
        tpot_ms,
        metrics.ttft_ms + saved_ms / tokens_per_step,
        metrics.requests_per_s * tokens_per_step,
    )


def pool_rate_per_s(
    prefill_rate: Values,
    decode_rate: Values,
    prefill_workers: Values,
    decode_workers: Values,
    constants: RoleConstants,
) -> Values:
    """Request rate of P prefill and D decode workers: min(a * p * P, c * d * D)."""
    xp = decode_rate.__array_namespace__()
    return xp.minimum(
        prefill_rate * prefill_workers * constants.prefill_degradation,
        decode_rate * decode_workers * constants.decode_degradation,
    )


def compose_disaggregated(
    prefill_ttft_ms: Values,
    decode_tpot_ms: Values,
    prefill_rate: Values,
    decode_rate: Values,
    prefill_workers: Values,
    decode_workers: Values,
    later_tokens: Values,
    constants: RoleConstants,
) -> MatchedMetrics:
    """Metrics of one disaggregated deployment from its two worker rows.

    Rates in requests/s per worker, times in ms, `later_tokens` = osl - 1.
    """
    ttft_ms = constants.ttft_correction * prefill_ttft_ms
    return MatchedMetrics(
        ttft_ms,
        ttft_ms + decode_tpot_ms * later_tokens,
        pool_rate_per_s(
            prefill_rate, decode_rate, prefill_workers, decode_workers, constants
        ),
    )
