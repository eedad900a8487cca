"""Host-side stages and encoders of a worker: checked, and not simulated yet."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ._domains import Choices, CountChoices
from ._record import Count, Fraction, Name, NonNegative, Positive, Record, Whole
from ._variants import ByShape


class HostProfile(Record):
    """Measured host costs."""

    path: Name = Field(description="File.")
    frontend: Literal["python", "rust"] = Field(description="Which front end.")


class FrontendMeasurement(Record):
    """What the stage times were measured for."""

    model: Name = Field(description="Model.")
    frontend: Literal["python", "rust"] = Field(description="Which front end.")
    feature_transport: Literal["inline", "shm"] = Field(
        description="How features travel."
    )
    height: Count = Field(description="Pixels.")
    width: Count = Field(description="Pixels.")
    count: Count = Field(default=1, description="Images of a request.")
    encoding: Literal["png", "jpeg"] = Field(default="png", description="File format.")
    min_pixels: Count | None = Field(default=None, description="Smallest, pixels.")
    max_pixels: Count | None = Field(default=None, description="Largest, pixels.")


class FrontendStage(Record):
    """One stage in front of the scheduler."""

    workers: Count = Field(default=1, description="Parallel servers.")
    service_ms: NonNegative = Field(description="Time of one request, ms.")
    concurrency_scale: tuple[Positive, ...] = Field(
        default=(), description="Factors of the time by requests in service."
    )


class Frontend(Record):
    """Stages in front of the scheduler."""

    stages: Annotated[tuple[FrontendStage, ...], Field(min_length=1)] = Field(
        description="In order."
    )
    measured_for: FrontendMeasurement | None = Field(
        default=None, description="What the times hold for."
    )


class Vision(Record):
    """Vision tower inside the worker."""

    cache_mib: Whole = Field(default=100, description="Cache of features, MiB.")
    encoder_parallel: Literal["tp", "dp"] = Field(
        default="tp", description="Parallelism of the tower."
    )


class EncoderTransfer(Record):
    """Link from encoder to language model."""

    bandwidth_gb_per_second: Positive = Field(description="GB/s.")


EncoderBatch = Annotated[Count, Field(le=8)]


class EncoderSettings(Record):
    """Pool of encoders."""

    mode: Literal["analytical", "native"] = Field(
        default="analytical", description="How it is priced."
    )
    hardware: Name | None = Field(default=None, description="null = the engine's.")
    backend_version: Name | None = Field(
        default=None, description="null = the engine's."
    )
    latency_correction: Positive = Field(default=1.0, description="Factor of times.")
    rate_degradation: Fraction = Field(default=0.9, description="Factor of rates.")
    host_profile: HostProfile | None = None
    frontend: Frontend | None = None
    transfer: EncoderTransfer | None = None


class EncoderPrediction(EncoderSettings):
    """Pool of encoders."""

    tensor: Count = Field(default=1, description="GPUs of an encoder.")
    replicas: Count = Field(default=1, description="Encoders.")
    batch_size: EncoderBatch = Field(default=1, description="Images at once, 1 to 8.")


class EncoderRecommendation(EncoderSettings):
    """Searched pool of encoders."""

    tensor: CountChoices = Field(default=1, description="GPUs of an encoder.")
    replicas: CountChoices = Field(default=1, description="Encoders.")
    batch_size: Annotated[EncoderBatch | Choices[EncoderBatch], ByShape()] = Field(
        default=1, description="Images at once, 1 to 8."
    )
