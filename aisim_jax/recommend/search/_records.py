"""What a search is made of: candidates, what became of them, what it covered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from aisim_jax._backends import Backend
from aisim_jax.replay import Deployment
from aisim_jax.traffic import Workload

from ._canonical import compact, finite
from ._pool import Shape
from ._score import Goal, Verdict


class Knobs(NamedTuple):
    """Limits of one rank; None: the engine's own block size (tokens) or memory share."""

    max_batched_tokens: int
    max_sequences: int
    block_size: int | None
    memory_fraction: float | None


class RoleSetting(NamedTuple):
    """One role of a candidate."""

    shape: Shape
    knobs: Knobs


class Branch(NamedTuple):
    """What a search chooses first."""

    mode: str
    backend: Backend
    version: str


@dataclass(frozen=True)
class Candidate:
    """A deployment under a load, and how many candidates it stands for.

    kv_load_ratio: the share of the KV capacity that the load fills, where it was given
    so. prediction: the configuration that says the same, as plain data; text: the same
    in one canonical form.
    """

    branch: Branch
    roles: dict[str, RoleSetting]
    kv_load_ratio: float | None
    stands_for: int
    workload: Workload
    deployment: Deployment
    prediction: dict[str, Any]
    provenance: dict[str, Any]
    text: str

    @property
    def used_gpus(self) -> int:
        """GPUs of all roles."""
        return sum(setting.shape.gpus for setting in self.roles.values())


@dataclass(frozen=True)
class Outcome:
    """A replayed candidate; metrics under the names of a prediction."""

    candidate: Candidate
    metrics: dict[str, Any]
    verdict: Verdict

    @property
    def feasible(self) -> bool:
        """Whether it is an answer."""
        return self.verdict.status == "feasible"

    @property
    def limits(self) -> tuple[tuple[int, int], ...]:
        """Scheduler limits of every role."""
        return tuple(setting.knobs[:2] for setting in self.candidate.roles.values())

    @property
    def but_for_limits(self) -> tuple[object, ...]:
        """Everything but the scheduler limits, and the figures."""
        one = self.candidate
        return (
            one.branch,
            tuple((role, s.shape, s.knobs[2:]) for role, s in one.roles.items()),
            id(one.workload),
            compact(finite(self.metrics)),
        )


class Dropped(NamedTuple):
    """Candidates that were not replayed, for one reason."""

    status: str
    reason_category: str
    reason: str
    branch: Branch | None
    role: str | None
    shape: Shape | None
    candidates: int


class Coverage(NamedTuple):
    """Counts of candidates; `legal` = dropped + screened_out + stood_for + left.

    replayed: distinct replays, which stand for `stood_for` candidates. left: not replayed
    because the budget was spent or the search was interrupted.
    """

    legal: int
    dropped: int
    distinct: int
    replayed: int
    stood_for: int
    screened_out: int
    left: int


@dataclass(frozen=True)
class Recommendation:
    """The answer of a search.

    outcomes: feasible ones in rank order, then the others. front: places in `outcomes`
    of the trade-off curve (`pareto` only). closest: the place of the outcome that misses
    the bounds least, when none is feasible.
    """

    goal: Goal
    outcomes: tuple[Outcome, ...]
    front: tuple[int, ...] | None
    closest: int | None
    dropped: tuple[Dropped, ...]
    coverage: Coverage
    notes: tuple[str, ...]
    interrupted: bool
    seconds: float

    @property
    def feasible(self) -> tuple[Outcome, ...]:
        """The answers, the best first."""
        return tuple(one for one in self.outcomes if one.feasible)

    @property
    def chosen(self) -> tuple[Outcome, ...]:
        """What is recommended: the trade-off curve, or every answer in rank order.

        Of answers that differ in scheduler limits alone and have the same figures, the
        one with the lowest limits.
        """
        places = range(len(self.feasible)) if self.front is None else self.front
        groups: dict[object, Outcome] = {}
        for place in places:
            one = self.outcomes[place]
            key = one.but_for_limits
            if key not in groups or one.limits < groups[key].limits:
                groups[key] = one
        return tuple(groups.values())
