"""What one replayed scenario amounts to, under the names of the reference's report."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from ..traffic import Workload
from ._deployment import Deployment
from ._goodput import Bounds, within_bounds
from ._outcome import REJECTED, UNFINISHED, Replayed
from ._samples import Samples, completed_samples, present, token_gaps_ms
from ._statistics import Statistics, statistics
from ._telemetry import duration_ms, hardware_figures, queue_figures, simulated_ms


def summary(
    replayed: Replayed,
    workload: Workload,
    deployment: Deployment,
    *,
    bounds: Bounds | None = None,
    compat: bool = False,
) -> dict[str, Any]:
    """The report of one scenario: latencies in ms, rates per second of virtual time.

    Latencies describe completed requests; the rejected share stands next to them. A
    statistic without samples is 0, as its num_*_samples says. Without a log of token
    instants only mean_itl_ms is given of the single gaps. compat: percentiles of gaps
    and of their rates as the reference's histogram reports them, within 0.1 %.
    """
    samples = completed_samples(replayed, workload)
    report = {
        **counts(replayed, samples, workload),
        **latencies(replayed, samples, compat=compat),
        **rates(replayed, samples, workload, deployment),
    }
    if bounds is not None:
        report |= goodput(samples, bounds, report)
    return report


def counts(replayed: Replayed, samples: Samples, workload: Workload) -> dict[str, Any]:
    """How many requests and tokens, and what became of the others."""
    until = workload.max_virtual_time_ms
    arrived = replayed.arrival_ms <= (np.inf if until is None else until)
    num_requests = int(arrived.sum())
    rejected = int((replayed.status == REJECTED).sum())
    isl = int(samples.isl_tokens.sum())
    reused = int(replayed.reused_tokens[samples.completed].sum(dtype=np.int64))
    first = int(replayed.first_reused_tokens[samples.completed].sum(dtype=np.int64))
    output = int(samples.output_tokens.sum())
    return {
        "num_requests": num_requests,
        "completed_requests": int(samples.completed.sum()),
        "rejected_requests": rejected,
        "rejected_share": rejected / num_requests if num_requests else 0.0,
        "unfinished_requests": int((arrived & (replayed.status == UNFINISHED)).sum()),
        "preemptions": replayed.preemptions,
        "total_input_tokens": isl,
        "total_output_tokens": output,
        "processed_tokens": isl + output,
        "committed_prefill_tokens": replayed.committed_prefill_tokens,
        "prefix_cache_reused_ratio": reused / isl if isl else 0.0,
        "first_admission_prefix_cache_reused_ratio": first / isl if isl else 0.0,
        "kv_eviction_policy": "lru",
    }


def latencies(replayed: Replayed, samples: Samples, *, compat: bool) -> dict[str, Any]:
    """Distributions over requests and over single gaps between tokens."""
    ttft, tpot = present(samples.ttft_ms), present(samples.tpot_ms)
    e2e = present(samples.e2e_ms)
    report: dict[str, Any] = {
        **_named(statistics(ttft), "ttft_ms"),
        **_named(statistics(present(samples.ttst_ms)), "ttst_ms"),
        **_named(statistics(tpot), "tpot_ms"),
        **_named(statistics(e2e), "e2e_latency_ms"),
        "num_ttft_samples": ttft.size,
        "num_tpot_samples": tpot.size,
        "num_e2e_latency_samples": e2e.size,
    }
    if replayed.token_times is None:
        return {**report, "mean_itl_ms": samples.mean_itl_ms}
    gaps = token_gaps_ms(replayed.token_times(), samples.completed)
    speeds = speeds_per_user(gaps)
    return {
        **report,
        **_named(statistics(gaps, histogram=compat), "itl_ms"),
        **_named(
            statistics(speeds, histogram=compat), "output_token_throughput_per_user"
        ),
    }


def speeds_per_user(gaps_ms: Float[np.ndarray, " gaps"]) -> Float[np.ndarray, " some"]:
    """Tokens/s that a user sees: 1000 / gap over the gaps that took time."""
    took_time = gaps_ms > 0
    return 1000.0 / (gaps_ms if took_time.all() else gaps_ms[took_time])


def _named(figures: Statistics, quantity: str) -> dict[str, float]:
    return {f"{name}_{quantity}": value for name, value in figures._asdict().items()}


def rates(
    replayed: Replayed,
    samples: Samples,
    workload: Workload,
    deployment: Deployment,
) -> dict[str, Any]:
    """Throughput, what the hardware was used for, queues.

    duration_ms: from 0 to the largest terminal instant. Per-GPU rates divide by all GPUs
    of all roles.
    """
    until = workload.max_virtual_time_ms
    lasted_ms = duration_ms(replayed)
    seconds = lasted_ms / 1000
    end_ms = simulated_ms(replayed, until)
    isl, output = int(samples.isl_tokens.sum()), int(samples.output_tokens.sum())
    prefill, decode = deployment.prefill, deployment.decode
    prefill_seconds = prefill.workers * end_ms / 1000 if prefill else 0.0
    decode_seconds = decode.workers * end_ms / 1000
    prefill_gpus = prefill.gpus_per_worker if prefill else 0
    gpu_seconds = prefill_seconds * prefill_gpus + decode_seconds * (
        decode.gpus_per_worker
    )
    gpus = gpu_count(deployment)
    arrived = replayed.arrival_ms <= (np.inf if until is None else until)
    return {
        "duration_ms": lasted_ms,
        "request_throughput_rps": _rate(int(samples.completed.sum()), seconds),
        "input_throughput_tok_s": _rate(isl, seconds),
        "output_throughput_tok_s": _rate(output, seconds),
        "total_throughput_tok_s": _rate(isl + output, seconds),
        "output_throughput_tok_s_per_gpu": _rate(output, seconds) / gpus,
        "total_throughput_tok_s_per_gpu": _rate(isl + output, seconds) / gpus,
        "gpus": gpus,
        "prefill_gpus_per_worker": prefill_gpus,
        "decode_gpus_per_worker": decode.gpus_per_worker,
        "prefill_worker_seconds": prefill_seconds,
        "decode_worker_seconds": decode_seconds,
        "gpu_hours": gpu_seconds / 3600,
        **queue_figures(replayed, arrived, end_ms),
        **hardware_figures(replayed, deployment, end_ms),
    }


def gpu_count(deployment: Deployment) -> int:
    """GPUs of all workers of all roles."""
    return sum(
        role.workers * role.gpus_per_worker
        for role in (deployment.prefill, deployment.decode)
        if role is not None
    )


def goodput(samples: Samples, bounds: Bounds, report: dict[str, Any]) -> dict[str, Any]:
    """Requests within the bounds, and their rates; `report` holds duration and GPUs."""
    good = within_bounds(samples, bounds)
    number, output = int(good.sum()), int(samples.output_tokens[good].sum())
    seconds = report["duration_ms"] / 1000
    return {
        "goodput_completed_requests": number,
        "goodput_request_throughput_rps": _rate(number, seconds),
        "goodput_output_throughput_tok_s": _rate(output, seconds),
        "goodput_output_throughput_tok_s_per_gpu": _rate(output, seconds)
        / report["gpus"],
    }


def _rate(amount: int, seconds: float) -> float:
    return amount / seconds if seconds > 0 else 0.0
