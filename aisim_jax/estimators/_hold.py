"""Beyond the measured grid: utilisation of the nearest leaves, in log2 distance.

With R the distance of the fifth nearest leaf, weights are
w = (max(R - d, 0) / (R d + 1e-12))^2, so only leaves nearer than R count and no sort is
needed; the held latency is SOL(query) / (sum w util / sum w).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..kernels import FLOOR
from ..systems import RaggedGrid


KEPT = 4  # leaves that count; the next one sets the reach


@dataclass(frozen=True, slots=True, eq=False)
class Leaves:
    """Measured points of one slice: log2 coordinates [pts, 3] and utilisation [pts]."""

    logs: np.ndarray
    util: np.ndarray


def grid_leaves(grid: RaggedGrid, latency_ms: np.ndarray, sol_ms: np.ndarray) -> Leaves:
    """Leaves with positive latency and speed of light, in sorted-key order."""
    usable = (latency_ms > 0) & (sol_ms > 0)  # NaN compares False
    where = np.nonzero(usable)
    logs = np.stack(
        [
            np.log2(np.maximum(np.asarray(axis, np.float64)[index], FLOOR))
            for axis, index in zip(grid.axes, where, strict=True)
        ],
        axis=1,
    )
    return Leaves(logs, sol_ms[usable] / latency_ms[usable])


def held_utilisation(leaves: Leaves, query: tuple[float, float, float]) -> float:
    """Blended utilisation at one query point (heads, outer, inner)."""
    target = np.log2(np.maximum(np.asarray(query, np.float64), FLOOR))
    delta = leaves.logs - target
    distance = np.sqrt((delta * delta).sum(axis=1))
    order = np.argsort(distance, kind="stable")[: KEPT + 1]
    nearest, util = distance[order], leaves.util[order]
    if order.size > KEPT:
        reach = nearest[KEPT]
        nearest, util = nearest[:KEPT], util[:KEPT]
        weight = (np.maximum(reach - nearest, 0.0) / (reach * nearest + FLOOR)) ** 2
    else:
        weight = 1.0 / (nearest * nearest + FLOOR)
    total = weight.sum()
    if total <= 0:
        weight, total = np.ones_like(weight), float(weight.size)
    return float((weight * util).sum() / total)
