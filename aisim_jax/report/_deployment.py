"""A deployment in a few words: layout, batch, memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any

from aisim_jax.models import Layout
from aisim_jax.recommend import DeploymentRecord, SweepResult


SERVING_MODES = {"agg": "aggregated", "disagg": "disaggregated"}
LAYOUT_NAMES = ("tp", "pp", "dp", "etp", "ep", "cp")


def layout_words(layout: Layout) -> str:
    """Parallel sizes above one, e.g. `tp4` or `dp8 ep8`; `tp1` for a single GPU."""
    sizes = zip(LAYOUT_NAMES, astuple(layout), strict=True)
    return " ".join(f"{name}{size}" for name, size in sizes if size > 1) or "tp1"


def deployment_layout(row: DeploymentRecord) -> str:
    """All workers, prefill before decode: `tp4`, or `2×tp1 → 1×(dp8 ep8)`."""
    words = [layout_words(worker.parallel) for worker in row.workers]
    if len(words) == 1:
        return words[0]
    shown = [f"({word})" if " " in word else word for word in words]
    return " → ".join(
        f"{worker.workers}×{word}"
        for worker, word in zip(row.workers, shown, strict=True)
    )


def deployment_batch(row: DeploymentRecord) -> str:
    """Requests per attention-DP rank of each worker."""
    return " → ".join(str(worker.batch) for worker in row.workers)


def deployment_memory(row: DeploymentRecord) -> str:
    """GiB per GPU of each worker."""
    return " → ".join(f"{worker.memory_gib:.1f}" for worker in row.workers)


def deployment_systems(row: DeploymentRecord) -> str:
    """Systems of the workers, once each."""
    return " → ".join(dict.fromkeys(worker.system for worker in row.workers))


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What tables, plots and pages show of a sweep of one model.

    `question` holds the request by the names of `sweep`'s arguments; `counts` the
    evaluated points by reason, for each serving mode: deployments of aggregated
    serving, single prefill and decode workers of disaggregated serving; `failures` the sentence of every experiment without an
    answer; `origins` where the measured data comes from.
    """

    model: str
    question: Mapping[str, Any]
    chosen: DeploymentRecord | None
    best: Mapping[str, tuple[DeploymentRecord, ...]]
    pareto: Mapping[str, tuple[DeploymentRecord, ...]]
    counts: Mapping[str, Mapping[str, int]]
    failures: Mapping[str, str]
    origins: tuple[str, ...]

    @property
    def by_latency(self) -> bool:
        """The frontier runs over request latency, not over speed per user."""
        return self.question.get("request_latency_ms") is not None

    @property
    def speed_label(self) -> str:
        """Name of the frontier's x axis."""
        return "request latency, ms" if self.by_latency else "tokens/s/user"

    def point(self, row: DeploymentRecord) -> tuple[float, float]:
        """Place of a deployment in the frontier plot."""
        speed = row.request_latency_ms if self.by_latency else row.tokens_per_s_per_user
        return speed, row.cluster_tokens_per_s_per_gpu


def question_text(report: SweepReport) -> str:
    """The request in one line."""
    asked = report.question
    parts = [f"{asked['model']}"]
    parts.append(f"{asked['isl']} tokens in, {asked['osl']} out")
    if asked.get("request_latency_ms"):
        parts.append(f"request latency ≤ {asked['request_latency_ms']:g} ms")
    else:
        parts.append(f"TTFT ≤ {asked['ttft_ms']:g} ms, TPOT ≤ {asked['tpot_ms']:g} ms")
    if asked.get("target_request_rate"):
        parts.append(f"{asked['target_request_rate']:g} requests/s")
    elif asked.get("target_concurrency"):
        parts.append(f"{asked['target_concurrency']:g} concurrent requests")
    if asked.get("gpus"):
        parts.append("1 GPU" if asked["gpus"] == 1 else f"{asked['gpus']} GPUs")
    return " · ".join(parts)


def sweep_report(result: SweepResult, question: Mapping[str, Any]) -> SweepReport:
    """The report of the first (or only) model of `result`."""
    model = str(question["model"])
    silent = {
        experiment.name: experiment.failure.sentence
        for experiment in result.experiments
        if experiment.failure is not None
    }
    return SweepReport(
        model=model,
        question=question,
        chosen=result.chosen_for(model),
        best={mode: result.best(mode, model) for mode in SERVING_MODES},
        pareto={mode: result.pareto(mode, model) for mode in SERVING_MODES},
        counts={mode: result.counts_of(mode) for mode in SERVING_MODES},
        failures={**silent, **result.failures},
        origins=_origins(result),
    )


def _origins(result: SweepResult) -> tuple[str, ...]:
    """One sentence per set of tables that was read."""
    tables = [
        pool.surfaces.pool.tables
        for experiment in result.experiments
        for pool in experiment.evaluation.pools.values()
    ]
    return tuple(
        dict.fromkeys(
            f"{one.spec.name}, {one.backend} {one.version}: measured tables "
            f"{one.digest.removeprefix('sha256:')[:10]} from {one.meta['origin']}"
            for one in tables
        )
    )
