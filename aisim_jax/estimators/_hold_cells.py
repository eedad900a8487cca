"""Which leaves can matter beyond the grid, tabulated over cells of the log2 plane.

For a cell with centre c and half-diagonal r, every query q inside satisfies
d5(q) <= d5(c) + r, and a leaf with d(c) > d5(c) + 2 r cannot be among the five nearest
of any q. What remains per cell is a short list that the kernels scan.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ..kernels._grid import CELL_OCTAVES
from ._hold import Leaves


OUTER_OCTAVES = {True: 22, False: 14}  # context: sequence; generation: batch
INNER_OCTAVES = {True: 14, False: 22}
NEAREST = 5


def cell_shape(is_context: bool) -> tuple[int, int]:
    """Cells along (outer, inner); coordinates beyond them are not tabulated."""
    return (
        int(OUTER_OCTAVES[is_context] / CELL_OCTAVES),
        int(INNER_OCTAVES[is_context] / CELL_OCTAVES),
    )


def near_leaves(leaves: Leaves, heads: int, is_context: bool) -> np.ndarray:
    """Leaf indices [outer cells, inner cells, near], padded with the leaf count.

    Empty (near = 0) when the slice has fewer than five leaves.
    """
    return _near(leaves.logs.tobytes(), leaves.logs.shape[0], heads, is_context)


@lru_cache(maxsize=256)
def _near(logs: bytes, count: int, heads: int, is_context: bool) -> np.ndarray:
    n_outer, n_inner = cell_shape(is_context)
    if count < NEAREST:
        return np.zeros((n_outer, n_inner, 0), np.int32)
    points = np.frombuffer(logs).reshape(count, 3)
    d_heads = (points[:, 0] - np.log2(heads)) ** 2
    outer_centre = (np.arange(n_outer) + 0.5) * CELL_OCTAVES
    inner_centre = (np.arange(n_inner) + 0.5) * CELL_OCTAVES
    d_outer = (outer_centre[:, None] - points[None, :, 1]) ** 2
    d_inner = (inner_centre[:, None] - points[None, :, 2]) ** 2
    distance = np.sqrt(
        d_heads[None, None, :] + d_outer[:, None, :] + d_inner[None, :, :]
    ).reshape(n_outer * n_inner, count)
    slack = 2.0 * CELL_OCTAVES * np.sqrt(0.5)
    fifth = np.partition(distance, NEAREST - 1, axis=1)[:, NEAREST - 1]
    keep = distance <= fifth[:, None] + slack + 1e-9
    width = int(keep.sum(axis=1).max())
    order = np.argsort(~keep, axis=1, kind="stable")[:, :width]
    near = np.where(np.take_along_axis(keep, order, axis=1), order, count)
    return near.reshape(n_outer, n_inner, width).astype(np.int32)
