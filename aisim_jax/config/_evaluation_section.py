"""The evaluation and execution sections: service levels, seeds, host resources."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from ._problems import problem
from ._record import Count, Fraction, NonNegative, Positive, Record


class ServiceLevels(Record):
    """Bounds that a request must keep: ttft and itl, or e2e."""

    ttft_ms: Positive | None = Field(default=None, description="First token, ms.")
    itl_ms: Positive | None = Field(
        default=None, description="Mean gap of later tokens, ms."
    )
    e2e_ms: Positive | None = Field(default=None, description="Whole answer, ms.")

    @model_validator(mode="after")
    def _check(self) -> ServiceLevels:
        if self.e2e_ms is not None and (self.ttft_ms or self.itl_ms):
            raise problem(
                "mixed_sla", "e2e_ms", "excludes ttft_ms and itl_ms; keep one kind"
            )
        return self

    @property
    def bounded(self) -> bool:
        """Whether any bound is given."""
        return bool(self.ttft_ms or self.itl_ms or self.e2e_ms)


class Evaluation(Record):
    """How answers are judged."""

    omitted: ClassVar[frozenset[str]] = frozenset({"seeds"})

    sla: ServiceLevels | None = None
    seeds: Count = Field(
        default=1,
        description="Replays with seed, seed + 1, ...; above 1 gives confidence "
        "intervals. An addition to the reference's schema.",
    )


class Resources(Record):
    """What a run may take of the host."""

    initialization_timeout_seconds: Positive = Field(
        default=60.0, description="Wait for the start."
    )
    shutdown_timeout_seconds: Positive = Field(
        default=5.0, description="Wait for the end."
    )
    memory_limit_gb: Positive | Literal["auto"] = Field(
        default="auto", description="Memory; auto = what is available."
    )
    cpu_limit: Count | Literal["auto"] = Field(
        default="auto", description="Processors; auto = what is available."
    )
    reserve_memory_gb: NonNegative = Field(
        default=1.0, description="Memory left to others."
    )
    reserve_memory_fraction: Annotated[NonNegative, Field(lt=1)] = Field(
        default=0.0, description="Share of the memory left to others, below 1."
    )
    available_memory_fraction: Fraction = Field(
        default=0.9, description="Share of the available memory that may be taken."
    )


class Execution(Record):
    """How the run itself behaves."""

    resources: Resources = Resources()
