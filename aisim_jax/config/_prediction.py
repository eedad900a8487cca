"""One deployment on one workload, as written in prediction.yaml."""

from __future__ import annotations

from pydantic import Field, model_validator

from ._engine_section import EnginePrediction
from ._evaluation_section import Evaluation, Execution
from ._problems import problem
from ._record import Record
from ._traffic_section import (
    DEFAULT_TRAFFIC,
    TrafficPrediction,
    TrafficRecommendation,
)
from ._traffic_source import SyntheticSource, TraceSource


class PredictionConfig(Record):
    """One deployment on one workload; immutable, unknown keys refused at every level."""

    traffic: TrafficPrediction = Field(
        default=TrafficPrediction.model_validate(DEFAULT_TRAFFIC),
        description="Requests; left out = 100 of 1024 + 128 tokens, 10 at a time.",
    )
    engine: EnginePrediction = Field(description="The deployment.")
    evaluation: Evaluation = Evaluation()
    execution: Execution = Execution()

    @model_validator(mode="after")
    def _check(self) -> PredictionConfig:
        check_source(self.traffic, (self.engine.mode,))
        check_encoder(self.traffic, self.engine.workers.encoder is not None)
        return self


def check_source(
    traffic: TrafficPrediction | TrafficRecommendation, modes: tuple[str, ...]
) -> None:
    """A delta trace grows its prompts by what the one pool generated."""
    source = traffic.source
    if (
        isinstance(source, TraceSource)
        and source.format == "mooncake-delta"
        and modes != ("aggregated",)
    ):
        raise problem(
            "delta_needs_aggregated",
            "traffic.source.format",
            f"mooncake-delta needs mode aggregated, got {', '.join(modes)}",
        )


def check_encoder(
    traffic: TrafficPrediction | TrafficRecommendation, encoder: bool
) -> None:
    """Encoders need images; images may do without encoders of their own."""
    source = traffic.source
    images = isinstance(source, SyntheticSource) and source.images is not None
    if encoder and not images:
        raise problem(
            "encoder_needs_images",
            "engine.workers.encoder",
            "needs traffic.source.images; remove it for text",
        )
