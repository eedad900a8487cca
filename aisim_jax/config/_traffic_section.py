"""The traffic section: what is asked, how fast, and until when."""

from __future__ import annotations

from pydantic import Field, model_validator

from ._problems import problem
from ._record import Count, Positive, Record
from ._traffic_load import (
    ConcurrencyLoad,
    ConcurrencySearch,
    PredictionLoad,
    Rate,
    RateSearch,
    RecommendationLoad,
    TraceTimestampsLoad,
    TraceTimestampsSearch,
)
from ._traffic_source import AGENTIC_FORMATS, Source, SyntheticSource, TraceSource


class TrafficStop(Record):
    """When traffic ends; a trace also ends by itself."""

    requests: Count | None = Field(default=None, description="Requests in all.")
    requests_per_load_unit: Positive | None = Field(
        default=None,
        description="Requests per unit of load: max(1, round(ratio * load)) in all.",
    )
    sessions: Count | None = Field(default=None, description="Sessions in all.")
    sessions_per_load_unit: Positive | None = Field(
        default=None,
        description="Sessions per unit of load: max(1, round(ratio * load)) in all.",
    )
    max_virtual_time_seconds: Positive | None = Field(
        default=None, description="Simulated time; traces only."
    )

    @model_validator(mode="after")
    def _check(self) -> TrafficStop:
        given = self.given()
        if len(given) != 1:
            raise problem(
                "one_stop",
                "",
                f"needs exactly one condition, got {', '.join(given) or 'none'}",
            )
        return self

    def given(self) -> list[str]:
        """The conditions that were written."""
        names = type(self).model_fields
        return [name for name in names if getattr(self, name) is not None]


class TrafficPrediction(Record):
    """Traffic of one prediction; left out = 100 requests of 1024 + 128, 10 at a time."""

    source: Source = Field(description="Where requests come from.")
    load: PredictionLoad = Field(description="How fast they come.")
    stop: TrafficStop | None = Field(
        default=None,
        description="When traffic ends; needed unless a trace is replayed.",
    )

    @model_validator(mode="after")
    def _check(self) -> TrafficPrediction:
        check_traffic(self)
        return self


class TrafficRecommendation(Record):
    """Traffic of a search; its load may be a domain."""

    source: Source = Field(description="Where requests come from.")
    load: RecommendationLoad = Field(description="How fast they come.")
    stop: TrafficStop | None = Field(
        default=None,
        description="When traffic ends; needed unless a trace is replayed.",
    )

    @model_validator(mode="after")
    def _check(self) -> TrafficRecommendation:
        check_traffic(self)
        return self


DEFAULT_TRAFFIC = {
    "source": {"type": "synthetic"},
    "load": {"type": "concurrency"},
    "stop": {"requests": 100},
}


def check_traffic(traffic: TrafficPrediction | TrafficRecommendation) -> None:
    """Raise the first contradiction between source, load and stop."""
    _check_load(traffic)
    _check_stop(traffic)


def _check_load(traffic: TrafficPrediction | TrafficRecommendation) -> None:
    source, load = traffic.source, traffic.load
    replays = isinstance(load, TraceTimestampsLoad | TraceTimestampsSearch)
    if isinstance(source, TraceSource):
        closed = isinstance(load, ConcurrencyLoad | ConcurrencySearch)
        if not replays and not closed:
            raise problem(
                "trace_load",
                "load.type",
                f"must be trace_timestamps or concurrency for a trace, got {load.type}",
            )
        if source.format in AGENTIC_FORMATS and not replays:
            raise problem(
                "agentic_load",
                "load.type",
                f"must be trace_timestamps for format {source.format}, got {load.type}",
            )
        if source.format == "applied_compute_agentic" and not closed:
            raise problem(
                "agentic_load",
                "load.type",
                f"must be concurrency for format {source.format}, got {load.type}",
            )
        return
    if replays:
        raise problem(
            "synthetic_load", "load.type", "trace_timestamps needs a trace source"
        )
    if isinstance(load, Rate | RateSearch):
        wanted, other = _units(source)
        if getattr(load, f"{wanted}_per_second") is None:
            raise problem(
                "rate_unit",
                f"load.{other}_per_second",
                f"does not match a {source.type} source; give {wanted}_per_second",
            )


def _check_stop(traffic: TrafficPrediction | TrafficRecommendation) -> None:
    source = traffic.source
    given = traffic.stop.given() if traffic.stop else []
    if isinstance(source, TraceSource):
        if given and given != ["max_virtual_time_seconds"]:
            raise problem(
                "trace_stop",
                f"stop.{given[0]}",
                "does not apply to a trace, which ends by itself or with "
                "max_virtual_time_seconds",
            )
        return
    wanted, _ = _units(source)
    if not given:
        raise problem(
            "missing_field",
            "stop",
            f"is required by a {source.type} source; add {wanted}",
        )
    if not given[0].startswith(wanted):
        raise problem(
            "stop_unit",
            f"stop.{given[0]}",
            f"does not apply to a {source.type} source; give {wanted} or "
            f"{wanted}_per_load_unit",
        )


def _units(source: Source) -> tuple[str, str]:
    if isinstance(source, SyntheticSource):
        return "requests", "sessions"
    return "sessions", "requests"
