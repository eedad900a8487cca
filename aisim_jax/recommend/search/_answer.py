"""From replayed candidates to a ranked answer."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ._candidates import Pool
from ._ranking import Entry, ranked, trade_off
from ._records import Candidate, Coverage, Outcome, Recommendation
from ._score import Goal, shortfall


def ranked_answer(
    pool: Pool,
    goal: Goal,
    evaluated: Sequence[Outcome],
    screened: Sequence[Candidate],
    *,
    notes: Sequence[str],
    interrupted: bool,
    seconds: float,
) -> Recommendation:
    """Rank what was evaluated; `screened` candidates could not have won."""
    feasible = [one for one in evaluated if one.feasible]
    entries = [_entry(one) for one in feasible]
    outcomes = [feasible[place] for place in ranked(entries, goal.target)]
    front = None
    if goal.target == "pareto":
        front = tuple(trade_off([_entry(one) for one in outcomes]))
    rest = [one for one in evaluated if not one.feasible]
    rest.sort(key=lambda one: (_distance(one, goal), one.candidate.text))
    closest = None
    if not outcomes and rest and rest[0].metrics:
        closest = 0
    outcomes += rest
    stood_for = sum(one.candidate.stands_for for one in outcomes)
    hopeless = sum(one.stands_for for one in screened)
    legal = pool.legal
    dropped = sum(one.candidates for one in pool.dropped)
    return Recommendation(
        goal=goal,
        outcomes=tuple(outcomes),
        front=front,
        closest=closest,
        dropped=pool.dropped,
        coverage=Coverage(
            legal=legal,
            dropped=dropped,
            distinct=len(pool.candidates),
            replayed=len(outcomes),
            stood_for=stood_for,
            screened_out=hopeless,
            left=legal - dropped - stood_for - hopeless,
        ),
        notes=tuple(notes),
        interrupted=interrupted,
        seconds=seconds,
    )


def _entry(outcome: Outcome) -> Entry:
    metrics, verdict = outcome.metrics, outcome.verdict
    assert verdict.score is not None
    return Entry(
        score=verdict.score,
        used_gpus=outcome.candidate.used_gpus,
        text=outcome.candidate.text,
        goodput=metrics.get("goodput_output_throughput_tok_s", 0.0),
        e2e_ms=metrics["mean_e2e_latency_ms"],
        objectives=tuple((verdict.objectives or {}).values()),
    )


def _distance(outcome: Outcome, goal: Goal) -> float:
    return shortfall(outcome.metrics, goal) if outcome.metrics else math.inf
