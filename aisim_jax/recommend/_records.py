"""Deployments as records: what people read, with units in the names."""

from __future__ import annotations

from dataclasses import dataclass

from aisim_jax.models import Layout


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """One kind of worker of a deployment.

    `batch`: requests per attention-DP rank; `context_budget_tokens`: prefill tokens of
    a mixed step, 0 in a dedicated role; `memory_gib`: per GPU; `requests_per_s`: of one
    worker, before rate matching.
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
    requests_per_s: float
    system: str
    backend: str
    version: str

    @property
    def parallel(self) -> Layout:
        """Parallel sizes of the worker."""
        return Layout(self.tp, self.pp, self.dp, self.moe_tp, self.moe_ep, self.cp)

    @property
    def gpus(self) -> int:
        """GPUs of one worker."""
        return self.parallel.gpus


@dataclass(frozen=True, slots=True)
class DeploymentRecord:
    """One deployment: its workers and what they deliver at steady state.

    Rates and concurrency are of one replica of `gpus_per_replica` GPUs;
    `cluster_tokens_per_s_per_gpu` also charges the GPUs of the budget that no replica
    fills. `load_served_percent` is below 100 only under a GPU ceiling.
    """

    model: str
    serving_mode: str
    backend: str
    version: str
    workers: tuple[WorkerRecord, ...]
    ttft_ms: float
    tpot_ms: float
    request_latency_ms: float
    tokens_per_s_per_user: float
    tokens_per_s_per_gpu: float
    cluster_tokens_per_s_per_gpu: float
    tokens_per_s: float
    requests_per_s: float
    concurrency: float
    gpus_per_replica: int
    replicas: int
    kv_precision: str
    meets_targets: bool
    load_served_percent: float = 100.0

    @property
    def gpus_used(self) -> int:
        """GPUs of all replicas."""
        return self.gpus_per_replica * self.replicas
