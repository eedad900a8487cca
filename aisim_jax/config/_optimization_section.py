"""The optimization and optimizer sections: what is sought, and how."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from ._problems import problem
from ._record import Count, Flag, Positive, Record, Text, Whole


Target = Literal[
    "throughput",
    "throughput_per_gpu",
    "throughput_per_user",
    "goodput",
    "goodput_per_gpu",
    "min_gpus",
    "ttft",
    "e2e_latency",
    "pareto",
]
SAMPLED_TRIALS = 320  # budget of the sampling algorithms where none is given


class CandidateConstraints(Record):
    """What a candidate may cost and must reach."""

    min_candidate_gpus: Count | None = Field(
        default=None, description="GPUs, at least."
    )
    max_candidate_gpus: Count = Field(default=32, description="GPUs, at most.")
    min_goodput_rps: Positive | None = Field(
        default=None,
        description="Requests per second within the service levels; min_gpus only.",
    )

    @model_validator(mode="after")
    def _check(self) -> CandidateConstraints:
        low = self.min_candidate_gpus
        if low is not None and low > self.max_candidate_gpus:
            raise problem(
                "empty_range",
                "min_candidate_gpus",
                f"is {low}, above max_candidate_gpus = {self.max_candidate_gpus}",
            )
        return self


class Optimization(Record):
    """What is sought."""

    target: Target = Field(default="throughput", description="Figure to improve.")
    hardware: Text | None = Field(
        default=None, description="Hardware system when engine.hardware is auto."
    )
    strict_sla: Flag = Field(
        default=False, description="Drop candidates whose means break a service level."
    )
    constraints: CandidateConstraints = CandidateConstraints()


class Optimizer(Record):
    """How candidates are chosen."""

    algorithm: Literal["exhaustive", "bayesian", "random"] = Field(
        default="exhaustive",
        description="exhaustive, an addition to the reference's schema, evaluates every "
        "candidate.",
    )
    max_trials: Count | Literal["auto"] = Field(
        default="auto",
        description="Candidates that are replayed, at most; auto = no limit for "
        f"exhaustive, {SAMPLED_TRIALS} otherwise.",
    )
    parallelism: Count = Field(default=16, description="Candidates at a time.")
    candidate_timeout_seconds: Positive = Field(
        default=600.0, description="Time of a candidate."
    )
    seed: Whole = Field(default=42, description="Seed of a sampling algorithm.")

    @property
    def budget(self) -> int | None:
        """Candidates that are replayed, at most; None = all."""
        if self.max_trials != "auto":
            return self.max_trials
        return None if self.algorithm == "exhaustive" else SAMPLED_TRIALS
