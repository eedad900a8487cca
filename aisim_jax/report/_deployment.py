"""What a report shows of a sweep: deployments, experiments, and why points lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


SERVING_MODES = {"agg": "aggregated", "disagg": "disaggregated"}


def layout_words(tp: int, pp: int, dp: int, moe_tp: int, moe_ep: int, cp: int) -> str:
    """Parallel sizes above one, e.g. `tp4` or `dp8 ep8`; `tp1` for a single GPU."""
    sizes = {"tp": tp, "pp": pp, "dp": dp, "etp": moe_tp, "ep": moe_ep, "cp": cp}
    shown = [f"{name}{size}" for name, size in sizes.items() if size > 1]
    return " ".join(shown) or "tp1"


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """One kind of worker in a deployment.

    `batch` is requests per attention-DP rank, `context_budget_tokens` the prefill
    tokens of a mixed step (0 where the role has none), memory is GiB per GPU.
    """

    role: str
    workers: int
    tp: int
    pp: int
    dp: int
    moe_tp: int
    moe_ep: int
    cp: int
    batch: int
    context_budget_tokens: int
    memory_gib: float
    system: str

    @property
    def gpus(self) -> int:
        """GPUs of one worker."""
        return self.tp * self.pp * self.dp * self.cp

    @property
    def layout(self) -> str:
        """Parallel sizes above one, e.g. `tp4` or `dp8 ep8`."""
        return layout_words(
            self.tp, self.pp, self.dp, self.moe_tp, self.moe_ep, self.cp
        )


@dataclass(frozen=True, slots=True)
class DeploymentRow:
    """One deployment: its workers and what they deliver.

    Rates are per second; `gpus_per_replica` counts all workers of one replica.
    """

    serving_mode: str
    backend: str
    version: str
    workers: tuple[WorkerRow, ...]
    ttft_ms: float
    tpot_ms: float
    request_latency_ms: float
    tokens_per_s_per_user: float
    tokens_per_s_per_gpu: float
    cluster_tokens_per_s_per_gpu: float
    requests_per_s: float
    concurrency: float
    gpus_per_replica: int
    replicas: int
    kv_precision: str = ""
    meets_targets: bool = True

    @property
    def gpus_used(self) -> int:
        """GPUs of all replicas."""
        return self.gpus_per_replica * self.replicas

    @property
    def layout(self) -> str:
        """All workers, e.g. `2 x tp1 > 1 x tp2` for prefill and decode."""
        if len(self.workers) == 1:
            return self.workers[0].layout
        return " > ".join(f"{w.workers}×({w.layout})" for w in self.workers)

    @property
    def batch(self) -> str:
        """Requests per attention-DP rank of each worker."""
        return " > ".join(str(worker.batch) for worker in self.workers)

    @property
    def memory(self) -> str:
        """Memory per GPU of each worker, GiB."""
        return " > ".join(f"{worker.memory_gib:.1f}" for worker in self.workers)


@dataclass(frozen=True, slots=True)
class ExperimentReport:
    """One serving mode of one engine on one system.

    `lost` counts the evaluated points by the reason for which they were refused;
    `failure` is the sentence of an experiment that answered nothing.
    """

    name: str
    model: str
    serving_mode: str
    backend: str
    system: str
    version: str
    evaluated: int
    lost: Mapping[str, int]
    best: tuple[DeploymentRow, ...]
    pareto: tuple[DeploymentRow, ...]
    origin: str = ""
    failure: str = ""


@dataclass(frozen=True, slots=True)
class SweepReport:
    """Everything that the tables, plots and files of a sweep show."""

    question: Mapping[str, object]
    experiments: tuple[ExperimentReport, ...]
    chosen: DeploymentRow | None
    notes: tuple[str, ...] = ()

    @property
    def model(self) -> str:
        """Model that was asked for."""
        return str(self.question["model"])

    def best(self, serving_mode: str) -> list[DeploymentRow]:
        """Best deployments of one mode over all experiments, as ranked by each."""
        rows = [
            row
            for experiment in self.experiments
            if experiment.serving_mode == serving_mode
            for row in experiment.best
        ]
        return sorted(rows, key=lambda row: -row.cluster_tokens_per_s_per_gpu)

    def pareto(self, serving_mode: str) -> list[DeploymentRow]:
        """Frontier points of one mode over all experiments, by speed per user."""
        rows = [
            row
            for experiment in self.experiments
            if experiment.serving_mode == serving_mode
            for row in experiment.pareto
        ]
        return sorted(rows, key=lambda row: row.tokens_per_s_per_user)
