"""Where an attention grid answers by itself."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from ..kernels import GridStack


def inner_range(
    grid: GridStack, lane: int, outer: Float[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Inner coordinates between which the grid answers; inf and -inf where it never does."""
    position = np.searchsorted(grid.outer, outer)
    last = grid.outer.size - 1
    exact = grid.outer[np.minimum(position, last)] == outer
    start = np.where(exact, position, position - 1)
    low, high = np.full(outer.shape, np.inf), np.full(outer.shape, -np.inf)
    for cut in range(int(grid.cuts[lane])):
        below = grid.previous[lane, cut][np.maximum(start, 0)]
        above = grid.following[lane, cut][np.minimum(position, last)]
        known = (start >= 0) & (position <= last) & (below >= 0) & (above <= last)
        for row in (below, np.minimum(above, last)):
            low = np.where(known, np.minimum(low, grid.low[lane, cut, row]), low)
            high = np.where(known, np.maximum(high, grid.high[lane, cut, row]), high)
    return low, high
