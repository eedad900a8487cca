"""The engine section: model, hardware, serving engine, its settings and workers."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from aisim_jax._backends import Backend

from ._afd_section import AfdPrediction, AfdRecommendation
from ._domains import Choices, expand
from ._engine_rules import check_engine
from ._estimator import EstimatorConfig
from ._fpm_profile import FpmModelProfile
from ._record import (
    Count,
    Flag,
    Name,
    NonNegative,
    Positive,
    Record,
    Text,
    Whole,
)
from ._speculation_section import (
    NgramSpeculation,
    SchemeSpeculation,
    read_speculation,
)
from ._timing_section import (
    DatabaseMode,
    DataRoots,
    EstimationMode,
    Fallback,
    QuantModes,
    TransferPolicy,
)
from ._variants import ByShape
from ._worker_section import WorkersPrediction, WorkersRecommendation


Mode = Literal["aggregated", "disaggregated", "afd"]


class KvTransferSettings(Record):
    """KV blocks on their way from prefill to decode."""

    bytes_per_token: Count | Literal["auto"] = Field(
        default="auto", description="Bytes of a token; auto = from the model."
    )
    bandwidth_gb_per_second: Positive | None = Field(
        default=None, description="GB/s; null = no time is spent."
    )
    timing_mode: Literal["full_prompt", "destination_missing"] = Field(
        default="destination_missing",
        description="Send the whole prompt, or what the decode worker lacks.",
    )


class TokenizationSettings(Record):
    """A tokenizer stage in front of the scheduler."""

    workers: Count = Field(default=1, description="Parallel servers.")
    base_ms: NonNegative = Field(default=0.0, description="Time of a request, ms.")
    per_input_token_us: NonNegative = Field(
        default=0.0, description="Time of a prompt token, microseconds."
    )


class PredictionTarget(Record):
    """What is served, on what."""

    mode: Mode = Field(default="aggregated", description="How phases share workers.")
    model: Text = Field(description="Hub name, local directory or config.json path.")
    hardware: Text = Field(description="Hardware system, e.g. h200_sxm.")
    backend: Backend = Field(default="vllm", description="Serving engine.")
    backend_version: Text | None = Field(
        default=None,
        description="Engine version, or current, previous, next; null = current.",
    )
    context_length: Count | Literal["max"] = Field(
        default="max", description="Tokens of prompt and answer; max = the model's."
    )


class RecommendationTarget(Record):
    """What is served, on what, as far as it is fixed."""

    mode: Annotated[Mode | Choices[Mode], ByShape()] = Field(
        default=Choices[Mode](choices=("aggregated", "disaggregated")),
        description="How phases share workers.",
    )
    model: Text = Field(description="Hub name, local directory or config.json path.")
    hardware: Text = Field(
        description="Hardware system, e.g. h200_sxm; auto = optimization.hardware."
    )
    backend: Annotated[Backend | Choices[Backend], ByShape()] = Field(
        default=Choices[Backend](choices=("vllm", "sglang")),
        description="Serving engine.",
    )
    backend_version: Text | dict[Text, Text] | None = Field(
        default=None,
        description="Engine version, or one per engine; null = current.",
    )
    context_length: Count | Literal["max"] = Field(
        default="max", description="Tokens of prompt and answer; max = the model's."
    )


class EngineSettings(QuantModes):
    """Kernels, precision and prices, for predictions and searches alike."""

    omitted: ClassVar[frozenset[str]] = frozenset(
        {"estimator_config", "pricing", "compat"}
    )

    nextn: Annotated[Whole, Field(le=5)] = Field(
        default=0, description="Draft tokens of the model's own draft layers."
    )
    nextn_accepted: NonNegative | None = Field(
        default=None, description="Mean draft tokens that hold; needed with nextn."
    )
    enable_chunked_prefill: Flag | None = Field(
        default=None, description="Cut long prompts; null = the engine's default."
    )
    enable_eplb: Flag = Field(default=False, description="Expert load balancing.")
    wideep_num_slots: Count | None = Field(default=None, description="Expert slots.")
    moe_backend: Text | None = Field(default=None, description="Expert kernel family.")
    moe_kernel_source: Text | None = Field(default=None, description="Expert kernel.")
    database_mode: DatabaseMode = Field(
        default="SILICON", description="Measured data, analytic laws, or both."
    )
    transfer_policy: TransferPolicy | None = Field(
        default=None, description="What HYBRID may transfer; null = everything."
    )
    systems_paths: DataRoots | None = Field(
        default=None, description="Ordered data roots; null = the packaged root."
    )
    systems_path: Name | None = Field(
        default=None, description="Old form of systems_paths, one root."
    )
    estimation_mode: EstimationMode = Field(default="auto", description="Estimator.")
    fallback_policy: Fallback = Field(
        default="deny", description="May another estimator answer?"
    )
    estimator_config: EstimatorConfig = Field(
        default=EstimatorConfig(), description="Tuning controls of every estimator."
    )
    fpm_profile: FpmModelProfile | None = None
    kv_transfer: KvTransferSettings | None = None
    pricing: Literal["means", "per_request"] = Field(
        default="means",
        description="means: a pass is priced by its mean lengths, as the reference does. "
        "per_request: each request by its own. An addition to the reference's schema.",
    )
    compat: Flag = Field(
        default=False,
        description="Reproduce the reference where better figures are known, its errors "
        "included. An addition to the reference's schema.",
    )


class EnginePrediction(EngineSettings, PredictionTarget):
    """The deployment that is simulated."""

    omitted: ClassVar[frozenset[str]] = EngineSettings.omitted

    decoder_replay: Flag = Field(default=False, description="Checked at construction.")
    enable_shared_layer: Flag | None = Field(
        default=None, description="Use measurements of sibling engine versions."
    )
    strict_provenance: Flag | None = Field(
        default=None, description="Refuse data that is not the version's own."
    )
    speculation: Annotated[
        NgramSpeculation | SchemeSpeculation | None, BeforeValidator(read_speculation)
    ] = None
    tokenization: TokenizationSettings | None = None
    afd: AfdPrediction | None = None
    workers: WorkersPrediction = WorkersPrediction()

    @model_validator(mode="after")
    def _check(self) -> EnginePrediction:
        check_engine(self, (self.mode,), (self.backend,))
        return self


class EngineRecommendation(EngineSettings, RecommendationTarget):
    """The deployments that are searched."""

    speculation: NgramSpeculation | None = None
    afd: AfdRecommendation | None = None
    workers: WorkersRecommendation = WorkersRecommendation()

    @model_validator(mode="after")
    def _check(self) -> EngineRecommendation:
        check_engine(self, expand(self.mode), expand(self.backend))
        return self
