"""In which order candidates are replayed, and which can no longer win."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .._pareto import pareto_front
from ._records import Candidate
from ._score import Goal
from ._screen import Screen, best_score


Reach = tuple[float, ...]


def by_kind(candidates: Sequence[Candidate]) -> list[int]:
    """Candidates that run through the same program one after the other."""
    return sorted(
        range(len(candidates)), key=lambda index: (kind_of(candidates[index]), index)
    )


def kind_of(candidate: Candidate) -> tuple[Any, ...]:
    """Candidates of one kind share a program, as far as their shapes tell."""
    deployment = candidate.deployment
    return (
        candidate.branch,
        candidate.workload.size,
        deployment.decode.workers,
        0 if deployment.prefill is None else deployment.prefill.workers,
    )


def reaches(candidates: Iterable[Candidate], goal: Goal) -> list[Reach]:
    """The best that every candidate could score, higher is better."""
    screen = Screen()
    return [
        best_score(screen.bound(one.workload, one.deployment), one.used_gpus, goal)
        for one in candidates
    ]


def by_promise(reach: Sequence[Reach]) -> list[int]:
    """The most promising first; two objectives: front after front."""
    points = np.array(reach, float).reshape(len(reach), -1)
    if points.shape[1] == 1:
        return np.argsort(-points[:, 0], kind="stable").tolist()
    order: list[int] = []
    left = np.arange(len(points))
    while left.size:
        front = pareto_front(points[left, 1], points[left, 0])
        if not front.size:
            order += left.tolist()
            break
        chosen = np.zeros(left.size, bool)
        chosen[front] = True
        order += left[chosen].tolist()
        left = left[~chosen]
    return order


def beaten(reach: Reach, found: Sequence[Reach]) -> bool:
    """Whether an answer that was found is better than all that `reach` allows."""
    return any(
        all(have >= most for have, most in zip(one, reach, strict=True))
        and one != reach
        for one in found
    )
