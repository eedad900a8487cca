"""Aggregate figures of a replay, in plain Python."""

from __future__ import annotations

import math
from itertools import pairwise

from .replay_inputs import Outcome, Record, Scenario


PERCENTILES = {"median": 50, "p75": 75, "p90": 90, "p95": 95, "p99": 99}
GAMMA = 1.001 / 0.999
Figures = dict[str, float]


def rank(count: int, percent: int) -> int:
    """Index of the nearest rank, halves away from zero."""
    return math.floor((count - 1) * percent / 100 + 0.5)


def moments(name: str, values: list[float]) -> Figures:
    """Mean, extremes and population deviation."""
    mean = math.fsum(values) / len(values)
    spread = math.fsum((value - mean) ** 2 for value in values) / len(values)
    return {
        f"mean_{name}": mean,
        f"min_{name}": min(values),
        f"max_{name}": max(values),
        f"std_{name}": math.sqrt(spread),
    }


def exact(name: str, values: list[float]) -> Figures:
    """Moments and nearest-rank percentiles; nothing without values."""
    if not values:
        return {}
    ordered = sorted(values)
    return moments(name, values) | {
        f"{label}_{name}": ordered[rank(len(values), percent)]
        for label, percent in PERCENTILES.items()
    }


def histogram(name: str, values: list[float]) -> Figures:
    """Moments, and percentiles from logarithmic bins of relative accuracy 0.001."""
    if not values:
        return {}
    bins: dict[int | None, int] = {}
    for value in values:
        key = None if value <= 1e-9 else math.ceil(math.log(value) / math.log(GAMMA))
        bins[key] = bins.get(key, 0) + 1
    ordered = sorted(bins, key=lambda key: -math.inf if key is None else key)

    def at(place: int) -> float:
        for key in ordered:
            place -= bins[key]
            if place < 0:
                return 0.0 if key is None else 2 * GAMMA**key / (GAMMA + 1)
        raise IndexError(place)

    return moments(name, values) | {
        f"{label}_{name}": at(rank(len(values), percent))
        for label, percent in PERCENTILES.items()
    }


def good(record: Record, sla: dict[str, float]) -> bool:
    """Whether a completed request keeps every bound that is given."""
    assert record.arrival_ms is not None
    if not record.token_ms:
        return False
    ttft = record.token_ms[0] - record.arrival_ms
    e2e = record.token_ms[-1] - record.arrival_ms
    count = len(record.token_ms)
    itl = (e2e - ttft) / (count - 1) if count > 1 else 0.0
    figures = {"ttft_ms": ttft, "itl_ms": itl, "e2e_ms": e2e}
    return all(figures[name] <= bound for name, bound in sla.items())


def summary(
    scenario: Scenario,
    outcome: Outcome,
    gpus_per_worker: dict[str, int] | None = None,
    sla: dict[str, float] | None = None,
) -> Figures:
    """Every aggregate over the completed requests that virtual time determines."""
    gpus = {"prefill": 1 if scenario.prefill else 0, "decode": 1} | (
        gpus_per_worker or {}
    )
    done = [record for record in outcome.records if record.status == "completed"]
    spoke = [record for record in done if record.token_ms]
    several = [record.token_ms for record in done if len(record.token_ms) > 1]
    gaps = [b - a for times in several for a, b in pairwise(times)]
    ends = [r.terminal_ms for r in outcome.records if r.terminal_ms is not None]
    seconds = max(ends) / 1000.0
    prompt = sum(record.request.isl for record in done)
    output = sum(len(record.token_ms) for record in done)
    workers = {"prefill": scenario.prefill.workers if scenario.prefill else 0}
    workers["decode"] = scenario.decode.workers
    busy = {role: count * outcome.end_ms / 1000.0 for role, count in workers.items()}
    figures: Figures = {
        "completed_requests": len(done),
        "num_requests": sum(r.arrival_ms is not None for r in outcome.records),
        "num_ttft_samples": len(spoke),
        "num_tpot_samples": len(several),
        "num_e2e_latency_samples": len(spoke),
        "total_input_tokens": prompt,
        "total_output_tokens": output,
        "processed_tokens": prompt + output,
        "committed_prefill_tokens": outcome.committed_prefill_tokens,
        "duration_ms": max(ends),
        "request_throughput_rps": len(done) / seconds,
        "input_throughput_tok_s": prompt / seconds,
        "output_throughput_tok_s": output / seconds,
        "total_throughput_tok_s": (prompt + output) / seconds,
        "prefill_worker_seconds": busy["prefill"],
        "decode_worker_seconds": busy["decode"],
        "gpu_hours": sum(busy[role] * gpus[role] for role in busy) / 3600.0,
        "prefix_cache_reused_ratio": sum(r.reused() for r in done) / prompt,
        "first_admission_prefix_cache_reused_ratio": sum(r.first_reused for r in done)
        / prompt,
    }
    figures |= exact("ttft_ms", [r.token_ms[0] - _arrival(r) for r in spoke])
    figures |= exact("e2e_latency_ms", [r.token_ms[-1] - _arrival(r) for r in spoke])
    figures |= exact("ttst_ms", [times[1] - times[0] for times in several])
    spans = [(times[-1] - times[0]) / (len(times) - 1) for times in several]
    figures |= exact("tpot_ms", spans)
    figures |= histogram("itl_ms", gaps)
    rates = [1000.0 / gap for gap in gaps if gap > 0]
    figures |= histogram("output_token_throughput_per_user", rates)
    if sla:
        kept = [record for record in done if good(record, sla)]
        tokens = sum(len(record.token_ms) for record in kept)
        figures["goodput_completed_requests"] = len(kept)
        figures["goodput_request_throughput_rps"] = len(kept) / seconds
        figures["goodput_output_throughput_tok_s"] = tokens / seconds
    return figures


def _arrival(record: Record) -> float:
    assert record.arrival_ms is not None
    return record.arrival_ms
