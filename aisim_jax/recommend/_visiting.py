"""Which grid points the compatible sweep evaluates: early stops and slice dedup."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int


class AggregatedGrid(NamedTuple):
    """The (batch, context) points of every layout, batch-major, both ascending.

    Only points whose context budget holds no more prompts than the batch (and, above
    one request, leaves one request to decode).
    """

    batch: Float[np.ndarray, " pts"]
    ctx_tokens: Float[np.ndarray, " pts"]


def aggregated_grid(
    batches: tuple[int, ...], budgets: tuple[int, ...], isl: int
) -> AggregatedGrid:
    """Cross batches with context budgets and drop what cannot be scheduled."""
    batch, ctx = (
        axis.ravel().astype(np.float64)
        for axis in np.meshgrid(batches, budgets, indexing="ij")
    )
    prompts = np.ceil(ctx / isl)
    keep = (batch >= prompts) & ((batch == 1) | (batch - prompts >= 1))
    return AggregatedGrid(batch[keep], ctx[keep])


def slice_numbers(grid: AggregatedGrid, isl: int, osl: int) -> Int[np.ndarray, " pts"]:
    """Dedup key of each point: b // (isl * b / ctx / osl), 0 where it has none.

    Two points with one key above 1 decode the same number of requests per prefill
    slice; the compatible sweep visits the first only. Float64 floor division.
    """
    share = isl * grid.batch / grid.ctx_tokens / osl
    slices = np.where(share > 1, grid.batch // np.where(share > 1, share, 1.0), 0.0)
    return np.where(slices > 1, slices, 0.0).astype(np.int64)


def visited_points(
    grid: AggregatedGrid,
    slices: Int[np.ndarray, " pts"],
    stops: Bool[np.ndarray, "cands pts"],
) -> Bool[np.ndarray, "cands pts"]:
    """Points that the loop over (batch, context) of each layout evaluates.

    `stops`: evaluating the point ends the context loop of its batch (it does not fit).
    The stopping point itself counts as evaluated. A key is recorded before evaluation,
    so which point survives depends on the stops before it: walk the points in order,
    all layouts at once.
    """
    cands, pts = stops.shape
    row_starts = np.flatnonzero(np.diff(grid.batch, prepend=np.nan) != 0)
    if not slices.any():
        before = np.cumsum(stops, axis=1, dtype=np.int32) - stops
        row = np.cumsum(np.isin(np.arange(pts), row_starts)) - 1
        return before == before[:, row_starts][:, row]
    visited = np.zeros((cands, pts), bool)
    seen = np.zeros((int(slices.max()) + 1, cands), bool)
    starts = set(row_starts.tolist())
    stops_by_point = np.ascontiguousarray(stops.T)
    running = np.ones(cands, bool)
    for point, key in enumerate(slices.tolist()):
        if point in starts:
            running = np.ones(cands, bool)
        evaluated = running & ~seen[key] if key else running
        if key:
            seen[key] |= running
        visited[:, point] = evaluated
        running = running & ~(evaluated & stops_by_point[point])
    return visited
