"""What a replayed candidate is worth for a target, and the gates that it must pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from aisim_jax.replay import Bounds


Metrics = Mapping[str, float]

MS_PER_HOUR = 3_600_000.0


class Goal(NamedTuple):
    """What is asked: a target, latency bounds, and whether they are gates.

    min_goodput_rps: requests/s within the bounds that a `min_gpus` answer must serve.
    """

    target: str
    bounds: Bounds | None = None
    strict: bool = False
    min_goodput_rps: float | None = None

    @property
    def gated(self) -> bool:
        """Whether a candidate that misses a bound on average is no answer."""
        return self.strict or self.target == "min_gpus"

    @property
    def needs_gaps(self) -> bool:
        """Whether the score takes the instants of single tokens."""
        return self.target in ("pareto", "throughput_per_user")


class Verdict(NamedTuple):
    """status: feasible or infeasible; score and objectives: higher is better."""

    status: str
    reason_category: str | None
    reason: str | None
    score: float | None
    objectives: dict[str, float] | None


def average_gpus(metrics: Metrics) -> float:
    """GPUs held on average over the run: gpu_hours / duration."""
    return metrics["gpu_hours"] / (metrics["duration_ms"] / MS_PER_HOUR)


def _per_gpu(name: str) -> Callable[[Metrics], float]:
    return lambda metrics: metrics[name] / average_gpus(metrics)


def _soonest(name: str, samples: str) -> Callable[[Metrics], float]:
    return lambda metrics: -metrics[name] if metrics[samples] > 0 else -math.inf


SCORES: dict[str, Callable[[Metrics], float]] = {
    "throughput": lambda metrics: metrics["output_throughput_tok_s"],
    "throughput_per_gpu": _per_gpu("output_throughput_tok_s"),
    "throughput_per_user": lambda metrics: metrics[
        "mean_output_token_throughput_per_user"
    ],
    "goodput": lambda metrics: metrics["goodput_output_throughput_tok_s"],
    "goodput_per_gpu": _per_gpu("goodput_output_throughput_tok_s"),
    "ttft": _soonest("mean_ttft_ms", "num_ttft_samples"),
    "e2e_latency": _soonest("mean_e2e_latency_ms", "num_e2e_latency_samples"),
}
OBJECTIVES = ("throughput_per_gpu", "throughput_per_user")
TARGETS = (*SCORES, "min_gpus", "pareto")


def judge(metrics: Metrics, used_gpus: int, goal: Goal) -> Verdict:
    """Score a replay; a run without a finished request has none."""
    if not metrics["completed_requests"] or not metrics["duration_ms"] > 0:
        return _refused("no_samples", _nothing_finished(metrics))
    misses = missed_gates(metrics, goal)
    if misses:
        category, sentences = misses
        return _refused(category, sentences)
    if goal.target == "min_gpus":
        return Verdict("feasible", None, None, -float(used_gpus), None)
    if goal.target == "pareto":
        objectives = {name: SCORES[name](metrics) for name in OBJECTIVES}
        return Verdict("feasible", None, None, objectives[OBJECTIVES[0]], objectives)
    score = SCORES[goal.target](metrics)
    if math.isnan(score):
        return _refused("invalid_metrics", f"{goal.target} is not a number")
    return Verdict("feasible", None, None, score, None)


def missed_gates(metrics: Metrics, goal: Goal) -> tuple[str, str] | None:
    """Category and sentence of the bounds that the means miss; None: all are met.

    Bounds are inclusive; a mean without samples misses its bound.
    """
    if not goal.gated:
        return None
    bounds = goal.bounds or Bounds()
    parts = [
        _miss(name, metrics[mean], metrics[samples], bound)
        for name, mean, samples, bound in (
            ("TTFT", "mean_ttft_ms", "num_ttft_samples", bounds.ttft_ms),
            ("TPOT", "mean_tpot_ms", "num_tpot_samples", bounds.itl_ms),
            (
                "latency",
                "mean_e2e_latency_ms",
                "num_e2e_latency_samples",
                bounds.e2e_ms,
            ),
        )
        if bound is not None
    ]
    missed = [part for part in parts if part]
    if missed:
        return "sla_constraint", "; ".join(missed)
    least = goal.min_goodput_rps
    if goal.target == "min_gpus" and least is not None:
        served = metrics["goodput_request_throughput_rps"]
        if served < least:
            return (
                "load_constraint",
                f"{served:.6g} requests/s within the bounds < {least:g}",
            )
    return None


def shortfall(metrics: Metrics, goal: Goal) -> float:
    """How far the worst missed bound is exceeded, as a ratio; 1 = at the bound."""
    bounds = goal.bounds or Bounds()
    ratios = [
        metrics[name] / bound
        for name, bound in (
            ("mean_ttft_ms", bounds.ttft_ms),
            ("mean_tpot_ms", bounds.itl_ms),
            ("mean_e2e_latency_ms", bounds.e2e_ms),
        )
        if bound is not None
    ]
    least, served = goal.min_goodput_rps, metrics.get("goodput_request_throughput_rps")
    if goal.target == "min_gpus" and least is not None and served is not None:
        ratios.append(least / served if served > 0 else math.inf)
    return max(ratios, default=math.inf)


def _miss(name: str, mean_ms: float, samples: float, bound_ms: float) -> str | None:
    if not samples:
        return f"no sample of {name} to hold against {bound_ms:g} ms"
    if mean_ms <= bound_ms:
        return None
    return f"mean {name} {mean_ms:.6g} ms > {bound_ms:g} ms"


def _nothing_finished(metrics: Metrics) -> str:
    rejected = int(metrics["rejected_requests"])
    if rejected:
        return (
            f"all of {rejected} requests were refused: their prompts exceed the context "
            "length or the KV cache; use a larger context_length, more GPUs per worker "
            "or shorter prompts"
        )
    return "no request finished within the simulated time; raise the time cap"


def _refused(category: str, reason: str) -> Verdict:
    return Verdict("infeasible", category, reason, None, None)
