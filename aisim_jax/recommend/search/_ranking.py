"""The order of feasible candidates, and the trade-off curve of a Pareto search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .._pareto import pareto_front
from ._score import OBJECTIVES


class Entry(NamedTuple):
    """What the order depends on; `text` is the canonical text of the configuration."""

    score: float
    used_gpus: int
    text: str
    goodput: float = 0.0
    e2e_ms: float = 0.0
    objectives: tuple[float, ...] = ()


def ranked(entries: Sequence[Entry], target: str) -> list[int]:
    """Indices of all entries, the best first.

    Score, then fewer GPUs, then the text; `min_gpus` looks at goodput and latency of
    candidates with equally many GPUs.
    """

    def key(index: int):
        one = entries[index]
        if target == "min_gpus":
            return (one.used_gpus, -one.goodput, one.e2e_ms, one.text)
        return (-one.score, one.used_gpus, one.text)

    return sorted(range(len(entries)), key=key)


def trade_off(entries: Sequence[Entry]) -> list[int]:
    """Indices of the non-dominated entries by ascending last objective; equals stay."""
    points = np.array([one.objectives for one in entries], float)
    points = points.reshape(len(entries), len(OBJECTIVES))
    front = points[pareto_front(points[:, 1], points[:, 0])]
    kept = [
        index
        for index, point in enumerate(points)
        if (front == point).all(axis=1).any()
    ]

    def key(index: int):
        one = entries[index]
        return (*reversed(one.objectives), one.used_gpus, one.text)

    return sorted(kept, key=key)
