"""A pool of equal workers: parallel shape, scheduler limits, cache and prices."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from ._cache_section import KvCachePrediction, KvCacheRecommendation
from ._domains import CountDomain
from ._frontend_section import (
    EncoderPrediction,
    EncoderRecommendation,
    Frontend,
    HostProfile,
    Vision,
)
from ._problems import problem
from ._record import Count, Flag, Name, NonNegative, Record, Whole
from ._timing_section import DefaultTiming, Timing
from ._variants import ByKind


ROLES = ("aggregated", "prefill", "decode")
SIZES = (
    "replicas",
    "tensor",
    "pipeline",
    "attention_data",
    "moe_tensor",
    "moe_expert",
)


class ParallelismPrediction(Record):
    """Counts; GPUs of the role = replicas * tensor * pipeline * attention_data."""

    replicas: Count = Field(default=1, description="Workers of the role.")
    tensor: Count = Field(default=1, description="Tensor-parallel ranks.")
    pipeline: Count = Field(default=1, description="Pipeline stages.")
    attention_data: Count = Field(default=1, description="Attention data ranks.")
    moe_tensor: Count = Field(default=1, description="Tensor ranks of an expert.")
    moe_expert: Count = Field(default=1, description="Expert-parallel ranks.")
    prefill_context: Count | None = Field(
        default=None, description="Context-parallel ranks in prefill."
    )
    decode_context: Count | None = Field(
        default=None, description="Context-parallel ranks in decode."
    )

    @property
    def gpus_per_worker(self) -> int:
        """GPUs of one worker; context and expert ranks reuse them."""
        return self.tensor * self.pipeline * self.attention_data

    @property
    def gpus(self) -> int:
        """GPUs of the role."""
        return self.replicas * self.gpus_per_worker


class ParallelShape(Record):
    """One entry of a preset list; all six sizes are named."""

    replicas: Count = Field(default=1, description="Workers of the role.")
    tensor: Count = Field(default=1, description="Tensor-parallel ranks.")
    pipeline: Count = Field(default=1, description="Pipeline stages.")
    attention_data: Count = Field(default=1, description="Attention data ranks.")
    moe_tensor: Count = Field(default=1, description="Tensor ranks of an expert.")
    moe_expert: Count = Field(default=1, description="Expert-parallel ranks.")
    prefill_context: Count | None = Field(
        default=None, description="Context-parallel ranks in prefill."
    )

    @model_validator(mode="after")
    def _check(self) -> ParallelShape:
        for name in SIZES:
            if name not in self.model_fields_set:
                raise problem(
                    "missing_field", name, "is missing; a preset entry names all sizes"
                )
        return self


class NoPreset(Record):
    """`{}`: no preset, the same as false."""


class ParallelismRecommendation(Record):
    """Which parallel shapes are tried."""

    preset: Annotated[
        Literal["default", False] | NoPreset | tuple[ParallelShape, ...], ByKind()
    ] = Field(
        default="default",
        description="default = every legal shape; a list = these shapes; false = the "
        "sizes below.",
    )
    replicas: CountDomain | None = Field(
        default=None, description="Workers of the role; null = all that fit."
    )
    tensor: CountDomain | None = Field(
        default=None, description="Tensor-parallel ranks; null = all feasible."
    )
    pipeline: CountDomain | None = Field(
        default=None, description="Pipeline stages; null = all feasible."
    )
    attention_data: CountDomain | None = Field(
        default=None, description="Attention data ranks; null = all feasible."
    )
    moe_tensor: CountDomain | None = Field(
        default=None, description="Tensor ranks of an expert; null = all feasible."
    )
    moe_expert: CountDomain | None = Field(
        default=None, description="Expert-parallel ranks; null = all feasible."
    )

    @model_validator(mode="after")
    def _check(self) -> ParallelismRecommendation:
        if self.preset is False or isinstance(self.preset, NoPreset):
            return self
        if self.preset == ():
            raise problem("empty_choices", "preset", "is empty; list a shape or false")
        given = [name for name in SIZES if getattr(self, name) is not None]
        if given:
            raise problem(
                "preset_with_sizes",
                given[0],
                "does not go with a preset; write preset: false to choose sizes",
            )
        return self


class SchedulerPrediction(Record):
    """Limits of one rank."""

    max_batched_tokens: Count = Field(default=8192, description="Tokens of a pass.")
    max_sequences: Count = Field(
        default=256, description="Requests at once; 1 when left out of a prefill role."
    )
    prefill_schedule_interval: Count = Field(
        default=1, description="Passes between prefill starts of a worker; vllm."
    )
    prefill_decode_interval: Whole = Field(
        default=0, description="Decode passes between prefill passes; sglang."
    )


class SchedulerRecommendation(Record):
    """Searched limits of one rank."""

    max_batched_tokens: CountDomain | None = Field(
        default=None,
        description="Tokens of a pass; null = 8192, 16384, 32768 (decode 8192).",
    )
    max_sequences: CountDomain | None = Field(
        default=None,
        description="Requests at once; null = 256, 512, 1024 (prefill 1, 2, 4, ... 256).",
    )


class WorkerSettings(Record):
    """What predictions and searches say alike about a worker."""

    hardware: Name | None = Field(
        default=None, description="null = the engine's; prefill and decode only."
    )
    context_length: Count | None = Field(
        default=None, description="Tokens; null = the engine's."
    )
    timing: Timing = Field(
        default=DefaultTiming(), description="How passes are priced."
    )
    startup_seconds: NonNegative = Field(
        default=0.0, description="Time before the worker serves."
    )


class HostSettings(Record):
    """Host-side costs; not simulated yet."""

    omitted: ClassVar[frozenset[str]] = frozenset({"host_loop"})

    host_loop: Flag = Field(default=False, description="Charge the host loop.")
    frontend: Frontend | None = None
    host_profile: HostProfile | None = None
    vision: Vision | None = None


class WorkerPrediction(WorkerSettings):
    """Workers of one role."""

    parallelism: ParallelismPrediction = ParallelismPrediction()
    scheduler: SchedulerPrediction = SchedulerPrediction()
    kv_cache: KvCachePrediction = KvCachePrediction()


class HostWorkerPrediction(HostSettings, WorkerPrediction):
    """Workers of a role that takes requests in."""


class WorkerRecommendation(WorkerSettings):
    """Searched workers of one role."""

    parallelism: ParallelismRecommendation = ParallelismRecommendation()
    scheduler: SchedulerRecommendation = SchedulerRecommendation()
    kv_cache: KvCacheRecommendation = KvCacheRecommendation()


class HostWorkerRecommendation(HostSettings, WorkerRecommendation):
    """Searched workers of a role that takes requests in."""


class WorkersPrediction(Record):
    """The roles of a deployment."""

    encoder: EncoderPrediction | None = None
    aggregated: HostWorkerPrediction | None = None
    prefill: HostWorkerPrediction | None = None
    decode: WorkerPrediction | None = None

    @model_validator(mode="before")
    @classmethod
    def _prefill_one_by_one(cls, value: object) -> object:
        """A prefill role runs one sequence at a time unless it says otherwise."""
        return _with_default(value, ("prefill", "scheduler"), "max_sequences", 1)


class WorkersRecommendation(Record):
    """The searched roles of a deployment."""

    encoder: EncoderRecommendation | None = None
    aggregated: HostWorkerRecommendation | None = None
    prefill: HostWorkerRecommendation | None = None
    decode: WorkerRecommendation | None = None


def _with_default(
    value: object, place: tuple[str, ...], name: str, default: object
) -> object:
    """Fill a field of a raw mapping, down a chain of blocks that may be left out."""
    if not isinstance(value, dict):
        return value
    if not place:
        return {name: default, **value}
    inner = value.get(place[0], {} if len(place) == 1 else None)
    return {**value, place[0]: _with_default(inner, place[1:], name, default)}
