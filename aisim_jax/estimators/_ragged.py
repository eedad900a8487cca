"""Ragged measured grids: descent with survivors, and the scalar look-up.

A grid is a tree of sorted axes (heads, outer, inner). A coordinate that is a key of its
node selects that child; otherwise the two bracketing children are evaluated and blended
linearly in the raw coordinate (on a square-root axis: the square roots, then squared).
Where only one child can answer, its value is scaled by SOL(query) / SOL(query moved to
that child's key). Where nothing can answer, the hold rule takes over.

`cut_slab` prepares a grid at one head count as a rectangular slab, which both the scalar
path and the batched kernels read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class Slab:
    """One head count: value_ms[outer, inner]; row r is valid in [low[r], high[r]]."""

    outer: np.ndarray
    inner: np.ndarray
    value_ms: np.ndarray
    low: np.ndarray
    high: np.ndarray


def cut_slab(outer: np.ndarray, inner: np.ndarray, latency_ms: np.ndarray) -> Slab:
    """Drop empty rows and fill holes inside each row linearly (the row's own rule)."""
    measured = ~np.isnan(latency_ms)
    rows = np.flatnonzero(measured.any(axis=1))
    inner = np.asarray(inner, np.float64)
    value = np.zeros((rows.size, inner.size))
    low, high = np.empty(rows.size), np.empty(rows.size)
    for out, row in enumerate(rows):
        keys = inner[measured[row]]
        low[out], high[out] = keys[0], keys[-1]
        inside = (inner >= keys[0]) & (inner <= keys[-1])
        value[out, inside] = np.interp(
            inner[inside], keys, latency_ms[row, measured[row]]
        )
    return Slab(np.asarray(outer, np.float64)[rows], inner, value, low, high)


def lookup_clamped_2d(
    first: np.ndarray, second: np.ndarray, latency_ms: np.ndarray, a, b: float
) -> np.ndarray:
    """Bilinear value at clamped (a[...], b) of a two-axis table; NaN = no data.

    Where one bracketing row lacks the column range, the other row answers alone (the
    tables in use are complete, so this only guards a partial import).
    """
    slab = cut_slab(first, second, latency_ms)
    a = np.clip(np.asarray(a, np.float64), slab.outer[0], slab.outer[-1])
    b = float(np.clip(b, slab.inner[0], slab.inner[-1]))
    column = np.array([np.interp(b, slab.inner, row) for row in slab.value_ms])
    column[(b < slab.low) | (b > slab.high)] = np.nan
    return np.interp(a, slab.outer, column)
