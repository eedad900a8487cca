"""How fast requests come, for one prediction and as domains of a search."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from ._domains import CountDomain, PositiveDomain
from ._problems import problem
from ._record import U64, Count, Flag, Name, NonNegative, Positive, Record
from ._variants import ByType


DEFAULT_CONCURRENCY = 10
DEFAULT_SEED = 42
BURSTINESS = (
    "Shape of the gamma distribution of the gaps: 1 / (coefficient of variation)^2; 1 = "
    "Poisson, below 1 = bursts."
)
SEED = "Seed of the arrival instants."


class ConcurrencyLoad(Record):
    """A closed loop: so many requests or sessions are in flight."""

    type: Literal["concurrency"] = Field(default="concurrency", description="Kind.")
    concurrency: Count = Field(
        default=DEFAULT_CONCURRENCY, description="Requests or sessions in flight."
    )


class ConcurrencySearch(Record):
    """A closed loop of searched size."""

    type: Literal["concurrency"] = Field(default="concurrency", description="Kind.")
    concurrency: CountDomain = Field(
        default=DEFAULT_CONCURRENCY, description="Requests or sessions in flight."
    )


class Rate(Record):
    """Arrivals per second of what the source makes."""

    requests_per_second: Positive | None = Field(
        default=None, description="Arrival rate of a synthetic source."
    )
    sessions_per_second: Positive | None = Field(
        default=None, description="Arrival rate of a synthetic-session source."
    )

    @model_validator(mode="after")
    def _check(self) -> Rate:
        _one_rate(self.requests_per_second, self.sessions_per_second)
        return self

    @property
    def per_second(self) -> float:
        """The rate that was given."""
        return self.requests_per_second or self.sessions_per_second or 0.0


class RateSearch(Record):
    """Searched arrivals per second of what the source makes."""

    requests_per_second: PositiveDomain | None = Field(
        default=None, description="Arrival rate of a synthetic source."
    )
    sessions_per_second: PositiveDomain | None = Field(
        default=None, description="Arrival rate of a synthetic-session source."
    )

    @model_validator(mode="after")
    def _check(self) -> RateSearch:
        _one_rate(self.requests_per_second, self.sessions_per_second)
        return self


def _one_rate(requests: object, sessions: object) -> None:
    if (requests is None) == (sessions is None):
        given = "neither" if requests is None else "both"
        raise problem(
            "one_rate",
            "",
            f"needs requests_per_second or sessions_per_second, got {given}",
        )


class PoissonLoad(Rate):
    """Independent arrivals: exponential gaps."""

    type: Literal["poisson"] = Field(description="Kind.")
    seed: U64 = Field(default=DEFAULT_SEED, description=SEED)


class PoissonSearch(RateSearch):
    """Independent arrivals at a searched rate."""

    type: Literal["poisson"] = Field(description="Kind.")
    seed: U64 = Field(default=DEFAULT_SEED, description=SEED)


class ConstantRateLoad(Rate):
    """Equal gaps of 1000 / rate ms."""

    type: Literal["constant_rate"] = Field(description="Kind.")


class ConstantRateSearch(RateSearch):
    """Equal gaps at a searched rate."""

    type: Literal["constant_rate"] = Field(description="Kind.")


class GammaLoad(Rate):
    """Bursty arrivals: gamma gaps. An addition to the reference's schema."""

    type: Literal["gamma"] = Field(description="Kind.")
    burstiness: Positive = Field(default=1.0, description=BURSTINESS)
    seed: U64 = Field(default=DEFAULT_SEED, description=SEED)


class GammaSearch(RateSearch):
    """Bursty arrivals at a searched rate. An addition to the reference's schema."""

    type: Literal["gamma"] = Field(description="Kind.")
    burstiness: Positive = Field(default=1.0, description=BURSTINESS)
    seed: U64 = Field(default=DEFAULT_SEED, description=SEED)


class KvCapacityFractionLoad(Record):
    """A closed loop that fills a share of the KV capacity of each candidate."""

    type: Literal["kv_capacity_fraction"] = Field(description="Kind.")
    fraction: PositiveDomain = Field(
        description="Share of the sequences of average length that the cache holds."
    )


class AgenticSnapshotSelection(Record):
    """One play and the instant at which it is cut; not simulated yet."""

    source_play_id: Name = Field(description="Play of the trace.")
    t_star_ms: NonNegative = Field(description="Instant of the cut, ms.")


class AgenticSnapshotOptions(Record):
    """Start of an agentic replay in the middle of plays; not simulated yet."""

    seed: U64 = Field(description="Seed of the selection.")
    initial_selections: (
        Annotated[tuple[AgenticSnapshotSelection, ...], Field(min_length=1)] | None
    ) = Field(default=None, description="Plays to start with.")
    corpus_cursor: U64 | None = Field(default=None, description="Next play.")


class AgenticProfileOptions(Record):
    """Time limits of an agentic replay; not simulated yet."""

    duration_seconds: Positive = Field(default=3600.0, description="Measured time.")
    response_grace_seconds: NonNegative = Field(
        default=30.0, description="Wait for answers at the end."
    )
    cancel_drain_seconds: NonNegative = Field(
        default=10.0, description="Wait for cancelled requests."
    )
    tree_idle_cap_seconds: Positive = Field(
        default=300.0, description="Longest pause inside a play."
    )
    global_idle_cap_seconds: Positive = Field(
        default=10.0, description="Longest pause of the whole replay."
    )


class AgenticControls(Record):
    """Controls of agentic traces, which are not simulated yet."""

    omitted: ClassVar[frozenset[str]] = frozenset(
        {"agentic_warmup_policy", "agentic_warmup"}
    )

    agentic_warmup_policy: Literal["repeated_prefixes", "live_trajectory_v1"] = Field(
        default="repeated_prefixes", description="How an agentic warm-up runs."
    )
    agentic_lanes: Count | None = Field(default=None, description="Plays at once.")
    agentic_snapshot: AgenticSnapshotOptions | None = Field(
        default=None, description="Start in the middle of plays."
    )
    agentic_warmup: Flag = Field(default=False, description="Warm the caches first.")
    agentic_profile: AgenticProfileOptions | None = Field(
        default=None, description="Time limits."
    )


class TraceTimestampsLoad(AgenticControls):
    """The instants that a trace recorded."""

    type: Literal["trace_timestamps"] = Field(description="Kind.")
    speedup: Positive = Field(default=1.0, description="Instants are divided by this.")


class TraceTimestampsSearch(AgenticControls):
    """The instants that a trace recorded, at a searched speed."""

    type: Literal["trace_timestamps"] = Field(description="Kind.")
    speedup: PositiveDomain = Field(
        default=1.0, description="Instants are divided by this."
    )


# The reference writes these beside every load type.
INERT = (("agentic_warmup", False), ("agentic_warmup_policy", "repeated_prefixes"))

PredictionLoad = Annotated[
    ConcurrencyLoad | PoissonLoad | ConstantRateLoad | GammaLoad | TraceTimestampsLoad,
    ByType("concurrency", INERT),
]
RecommendationLoad = Annotated[
    ConcurrencySearch
    | PoissonSearch
    | ConstantRateSearch
    | GammaSearch
    | KvCapacityFractionLoad
    | TraceTimestampsSearch,
    ByType("concurrency", INERT),
]
