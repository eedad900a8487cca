"""A search over deployments, as written in recommendation.yaml."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from ._domains import expand
from ._engine_section import EngineRecommendation
from ._evaluation_section import Evaluation, Execution
from ._optimization_section import Optimization, Optimizer
from ._prediction import check_encoder, check_source
from ._problems import problem
from ._record import Record
from ._traffic_load import ConcurrencySearch, RateSearch
from ._traffic_section import DEFAULT_TRAFFIC, TrafficRecommendation
from ._traffic_source import SyntheticSource


NEED_SLA = ("goodput", "goodput_per_gpu", "min_gpus")


def _or_default(value: Any) -> Any:
    return DEFAULT_TRAFFIC if value is None else value


class RecommendationConfig(Record):
    """A search over deployments; immutable, unknown keys refused at every level."""

    traffic: Annotated[TrafficRecommendation, BeforeValidator(_or_default)] = Field(
        default=TrafficRecommendation.model_validate(DEFAULT_TRAFFIC),
        description="Requests; left out = 100 of 1024 + 128 tokens, 10 at a time.",
    )
    engine: EngineRecommendation = Field(description="Deployments to consider.")
    evaluation: Evaluation = Evaluation()
    execution: Execution = Execution()
    optimization: Optimization = Field(description="What is sought.")
    optimizer: Optimizer = Optimizer()

    @model_validator(mode="after")
    def _check(self) -> RecommendationConfig:
        check_source(self.traffic, expand(self.engine.mode))
        check_encoder(self.traffic, self.engine.workers.encoder is not None)
        if self.engine.hardware == "auto" and self.optimization.hardware is None:
            raise problem(
                "missing_field",
                "optimization.hardware",
                "is needed when engine.hardware is auto; name the hardware system",
            )
        if self.evaluation.seeds > 1:
            raise problem(
                "seeds_in_search",
                "evaluation.seeds",
                f"is {self.evaluation.seeds}; a search replays each candidate once, use "
                "several seeds on the predictions that it writes",
            )
        self._check_target()
        return self

    def _check_target(self) -> None:
        sought = self.optimization
        sla = self.evaluation.sla
        bounded = sla is not None and sla.bounded
        for name, needed in (
            ("strict_sla", sought.strict_sla),
            (f"target {sought.target}", sought.target in NEED_SLA),
        ):
            if needed and not bounded:
                raise problem(
                    "missing_sla",
                    "evaluation.sla",
                    f"is needed by optimization {name}; give ttft_ms and itl_ms, or "
                    "e2e_ms",
                )
        wanted = sought.constraints.min_goodput_rps
        if sought.target != "min_gpus":
            if wanted is not None:
                raise problem(
                    "goodput_without_min_gpus",
                    "optimization.constraints.min_goodput_rps",
                    f"only applies to target min_gpus, got {sought.target}",
                )
            return
        self._check_min_gpus(wanted)

    def _check_min_gpus(self, wanted: float | None) -> None:
        load = self.traffic.load
        if isinstance(load, ConcurrencySearch):
            offered = expand(load.concurrency)
        elif isinstance(load, RateSearch):
            offered = expand(load.requests_per_second)
        else:
            offered = ()
        if not isinstance(self.traffic.source, SyntheticSource) or len(offered) != 1:
            raise problem(
                "min_gpus_load",
                "traffic.load",
                "target min_gpus needs a synthetic source with one concurrency or one "
                "rate",
            )
        if wanted and isinstance(load, RateSearch) and wanted > offered[0]:
            raise problem(
                "goodput_above_rate",
                "optimization.constraints.min_goodput_rps",
                f"is {wanted}, above the {offered[0]} requests per second that arrive",
            )


def recommendation_notes(config: RecommendationConfig) -> list[str]:
    """What a person should hear before the search starts."""
    notes = []
    if "traffic" not in config.model_fields_set:
        notes.append(
            "traffic is left out: 100 requests of 1024 + 128 tokens, 10 at a time."
        )
    if config.engine.context_length == "max":
        notes.append(
            "engine.context_length is max: shapes whose KV cache cannot hold one sequence "
            "of the model's longest context are left out; set it to prompt + answer."
        )
    return notes
