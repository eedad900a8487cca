"""The search: enumerate, screen, replay, judge, rank."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from aisim_jax.config import RecommendationConfig, plain, recommendation_notes
from aisim_jax.replay import Bounds

from ._answer import ranked_answer
from ._candidates import Pool, build_pool
from ._canonical import fingerprint
from ._order import Reach, beaten, by_kind, by_promise, kind_of, reaches
from ._records import Candidate, Outcome, Recommendation
from ._replays import replay_batch
from ._score import Goal, Verdict, judge
from ._store import Journal


# A space of so many distinct candidates is replayed without a look at bounds.
REPLAY_ALL = 6000
BATCH = 128
# Usual cost of a replay on one core, of a program, of starting (for estimates only).
PROGRAM_S = 1.5
SECONDS_PER_REQUEST = 2e-5
START_S = 2.0

Progress = Callable[[int, int], None]


class Plan(NamedTuple):
    """What a search is going to do; `order` are places in the pool's candidates.

    reach: the best that each candidate could score, where bounds are in use.
    """

    pool: Pool
    goal: Goal
    order: list[int]
    reach: list[Reach] | None
    budget: int | None
    compat: bool


def plan_search(config: RecommendationConfig, beside: Path | None = None) -> Plan:
    """Enumerate the candidates and put them in order; replays nothing."""
    pool = build_pool(config, beside)
    goal = search_goal(config)
    budget = config.optimizer.budget
    number = len(pool.candidates)
    compat = config.engine.compat
    if number <= REPLAY_ALL and (budget is None or budget >= number):
        return Plan(pool, goal, by_kind(pool.candidates), None, None, compat)
    reach = reaches(pool.candidates, goal)
    return Plan(pool, goal, by_promise(reach), reach, budget, compat)


def plan_record(plan: Plan) -> dict[str, Any]:
    """What a search would do, in numbers."""
    distinct = len(plan.pool.candidates)
    replays = distinct if plan.budget is None else min(plan.budget, distinct)
    return {
        "candidates": plan.pool.legal,
        "dropped": sum(one.candidates for one in plan.pool.dropped),
        "distinct": distinct,
        "replays": replays,
        "estimated_seconds": _seconds(plan, replays),
    }


def _seconds(plan: Plan, replays: int) -> float:
    """Rough time of the replays: so many requests at the usual pace."""
    every = plan.pool.candidates
    chosen = [every[index] for index in plan.order[:replays]]
    requests = sum(one.workload.size for one in chosen)
    programs = len({kind_of(one) for one in chosen})
    return START_S + programs * PROGRAM_S + requests * SECONDS_PER_REQUEST


def search_goal(config: RecommendationConfig) -> Goal:
    """The target with its bounds and gates."""
    sought, sla = config.optimization, config.evaluation.sla
    return Goal(
        target=sought.target,
        bounds=None if sla is None else Bounds(sla.ttft_ms, sla.itl_ms, sla.e2e_ms),
        strict=sought.strict_sla,
        min_goodput_rps=sought.constraints.min_goodput_rps,
    )


def recommend(
    config: RecommendationConfig,
    *,
    folder: Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    beside: Path | None = None,
) -> Recommendation:
    """Replay every candidate that could win and rank the answers.

    folder: where finished replays are kept until the search ends; with `resume` those
    of an earlier, interrupted search are taken from there. progress: called with the
    replays done and to do. An interrupt (Ctrl-C) ends the search with what it has. beside:
    where trace files are looked for after the working directory.
    """
    started = time.perf_counter()
    plan = plan_search(config, beside)
    journal = None
    if folder is not None:
        journal = Journal(folder, fingerprint(plain(config)), resume=resume)
    search = _Search(plan, journal, progress)
    interrupted = False
    try:
        search.run()
    except KeyboardInterrupt:
        interrupted = True
    finally:
        if journal is not None:
            journal.close(keep=interrupted or not search.ended)
    return ranked_answer(
        plan.pool,
        plan.goal,
        search.outcomes,
        search.screened,
        notes=[*recommendation_notes(config), *_notes(config, plan, search)],
        interrupted=interrupted,
        seconds=time.perf_counter() - started,
    )


class _Search:
    """Replays in order, dropping what can no longer win."""

    def __init__(
        self, plan: Plan, journal: Journal | None, progress: Progress | None
    ) -> None:
        self._plan = plan
        self._journal = journal
        self._progress = progress
        self.outcomes: list[Outcome] = []
        self.screened: list[Candidate] = []
        self.ended = False
        self._best: list[Reach] = []

    def run(self) -> None:
        """Work through the plan; an exception leaves what was finished."""
        left = list(self._plan.order)
        spent = 0
        budget = self._plan.budget
        while left and (budget is None or spent < budget):
            room = BATCH if budget is None else min(BATCH, budget - spent)
            batch, left = self._next(left, room)
            if not batch:
                break
            self._tell(spent, len(left) + len(batch))
            self._replay(batch)
            spent += len(batch)
        self._tell(spent, 0)
        self.ended = True

    def _next(self, left: list[int], room: int) -> tuple[list[Candidate], list[int]]:
        """The next batch, and what stays; hopeless candidates are dropped on the way."""
        every, reach = self._plan.pool.candidates, self._plan.reach
        batch: list[Candidate] = []
        for place, index in enumerate(left):
            if reach is not None and beaten(reach[index], self._best):
                self.screened.append(every[index])
                continue
            # A finished batch is kept: it ends where the next program begins.
            if reach is None and batch and kind_of(every[index]) != kind_of(batch[0]):
                return batch, left[place:]
            batch.append(every[index])
            if len(batch) == room:
                return self._alike(batch), left[place + 1 :]
        return self._alike(batch), []

    def _alike(self, batch: list[Candidate]) -> list[Candidate]:
        return [batch[place] for place in by_kind(batch)]

    def _tell(self, done: int, left: int) -> None:
        if self._progress is not None:
            budget = self._plan.budget
            total = done + left if budget is None else min(done + left, budget)
            self._progress(done, total)

    def _replay(self, batch: Sequence[Candidate]) -> None:
        goal = self._plan.goal
        fresh = []
        for candidate in batch:
            known = self._journal.known(candidate) if self._journal else None
            if known is None:
                fresh.append(candidate)
            else:
                self._take(candidate, known)
        found = []
        for candidate, figures in replay_batch(fresh, goal, compat=self._plan.compat):
            if isinstance(figures, Verdict):
                self.outcomes.append(Outcome(candidate, {}, figures))
            else:
                self._take(candidate, figures)
                found.append((candidate, figures))
        if self._journal is not None:
            self._journal.add(found)

    def _take(self, candidate: Candidate, metrics: dict[str, Any]) -> None:
        verdict = judge(metrics, candidate.used_gpus, self._plan.goal)
        self.outcomes.append(Outcome(candidate, metrics, verdict))
        if self._plan.reach is None or verdict.score is None:
            return
        point = tuple((verdict.objectives or {"score": verdict.score}).values())
        if not beaten(point, self._best):
            self._best = [one for one in self._best if not beaten(one, [point])]
            self._best.append(point)


def _notes(config: RecommendationConfig, plan: Plan, search: _Search) -> list[str]:
    """What the reader should know about how the search went."""
    notes = []
    optimizer = config.optimizer
    number = len(plan.pool.candidates)
    if optimizer.algorithm != "exhaustive":
        notes.append(
            f"optimizer.algorithm {optimizer.algorithm} is not needed: candidates are "
            "enumerated, not sampled."
        )
    if plan.budget is not None:
        notes.append(
            f"optimizer.max_trials = {plan.budget} is less than the {number:,} distinct "
            "candidates: the most promising by closed form are replayed."
        )
    if search.screened:
        notes.append(
            f"{len(search.screened):,} distinct candidates were not replayed: the best "
            "that they could reach is below an answer that was found."
        )
    return notes
