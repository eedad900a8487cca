"""Batches of candidates through the simulator, each to its figures or to a reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aisim_jax._errors import AisimError, MissingPerfDataError
from aisim_jax.replay import (
    COMPLETED,
    UNFINISHED,
    Admissible,
    Reason,
    Replayed,
    admissible,
    replay_scenarios,
    restored,
    speeds_per_user,
    summary,
    token_gaps_ms,
    without,
)

from ._records import Candidate
from ._score import Goal, Verdict


Answer = dict[str, Any] | Verdict

# What a refused request says about its candidate.
CATEGORIES = {
    Reason.CONTEXT: "load_constraint",
    Reason.BUDGET: "load_constraint",
    Reason.PROMPT_POOL: "kv_capacity",
    Reason.WHOLE_POOL: "kv_capacity",
    Reason.PAGE: "kv_capacity",
}


@dataclass(frozen=True)
class _Judged:
    """A candidate whose requests were looked at before the run."""

    candidate: Candidate
    judged: Admissible

    @property
    def hopeless(self) -> bool:
        """Whether no request can be served."""
        return bool((self.judged.reason != Reason.FITS).all())


def replay_batch(
    candidates: Iterable[Candidate], goal: Goal, *, compat: bool
) -> Iterator[tuple[Candidate, Answer]]:
    """Figures of every candidate under the names of a prediction, or why it has none.

    compat: a request that the engine would wait for forever fails the candidate, as in
    the reference; otherwise such requests are taken out beforehand.
    """
    runnable = []
    for candidate in candidates:
        one = _Judged(candidate, admissible(candidate.workload, candidate.deployment))
        if one.hopeless or (compat and one.judged.stalls.any()):
            yield candidate, _refusal(one.judged, hopeless=one.hopeless)
        else:
            runnable.append(one)
    for one, answer in _answers(runnable, log=goal.needs_gaps):
        if isinstance(answer, Verdict):
            yield one.candidate, answer
        else:
            yield one.candidate, _figures(one, answer, goal)


def _refusal(judged: Admissible, *, hopeless: bool) -> Verdict:
    reason = Reason(int(judged.reason[judged.reason != Reason.FITS][0]))
    return Verdict(
        "infeasible" if hopeless else "failed",
        CATEGORIES[reason],
        judged.sentence(reason),
        None,
        None,
    )


def _answers(
    batch: Sequence[_Judged], *, log: bool
) -> Iterator[tuple[_Judged, Replayed | Verdict]]:
    """Replay a batch; where it fails, halves of it, down to the one that is at fault."""
    if not batch:
        return
    given = [
        (without(one.judged.workload, one.judged.stalls), one.candidate.deployment)
        for one in batch
    ]
    try:
        answers = replay_scenarios(given, log=log)
    except AisimError as error:
        if len(batch) == 1:
            missing = isinstance(error, MissingPerfDataError)
            status = "unsupported" if missing else "failed"
            verdict = Verdict(status, "replay_runtime", str(error), None, None)
            yield batch[0], verdict
            return
        middle = len(batch) // 2
        yield from _answers(batch[:middle], log=log)
        yield from _answers(batch[middle:], log=log)
        return
    yield from zip(batch, answers, strict=True)


def _figures(one: _Judged, answer: Replayed, goal: Goal) -> Answer:
    workload, deployment = one.judged.workload, one.candidate.deployment
    replayed = restored(answer, workload, one.judged.stalls)
    stuck = (replayed.status == UNFINISHED) & ~np.isnan(replayed.arrival_ms)
    if workload.max_virtual_time_ms is None and stuck.any():
        return Verdict(
            "failed",
            "replay_runtime",
            f"the engine stops with {int(stuck.sum())} requests in flight; none can get "
            "the KV blocks or the pass that it needs",
            None,
            None,
        )
    # Distributions of single gaps are of no use here and cost more than the replay.
    plain = replace(replayed, token_times=None, passes=None)
    report = summary(plain, workload, deployment, bounds=goal.bounds)
    if replayed.token_times is None:
        # Without a log the second token is not known: no figure is better than 0.
        return {
            name: value
            for name, value in report.items()
            if not name.endswith("_ttst_ms")
        }
    gaps = token_gaps_ms(replayed.token_times(), replayed.status == COMPLETED)
    speeds = speeds_per_user(gaps)
    report["mean_output_token_throughput_per_user"] = (
        float(speeds.mean()) if speeds.size else 0.0
    )
    return report
