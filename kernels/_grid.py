"""Look-ups in stacks of ragged attention grids, for one query each.

A stack holds one prepared slice per lane (deployment) on shared axes. Coordinates are
(outer, inner): prefill attention (full sequence, batch) with a square-root outer axis,
decode attention (batch, KV length). Everything here is written for one query; `vmap` at
the boundary.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Bool, Float, Int

from ._arrays import Array
from ._bounds import grid_sol_ms


class GridStack(NamedTuple):
    """Prepared slices of many lanes; axes are padded with inf.

    line[lane, cut, r, c] = (intercept, slope) of row r for inner coordinates from key c
    to key c + 1; row r answers in [low, high]; rows that were not measured are skipped
    through `previous` and `following`. The heads of a lane lie between those of its two
    cuts at share `blend` where cuts = 2; cuts = 0 where no measured head count is near.
    bound[lane] holds speed-of-light coefficients at the heads of the query (0) and of
    each cut (1, 2).

    Beyond the grid, `cells` maps (hold group, log2 cell) to a row of `near` (plus
    WIDE_ROW where it lists more than NARROW leaves): the leaves that can be among the
    five nearest, four columns each (squared head distance, log2 outer, log2 inner,
    utilisation), padded with distance inf; -1 where not tabulated.
    """

    outer: Float[Array, " outer"]
    inner: Float[Array, " inner"]
    line: Float[Array, "lanes two outer inner pair"]
    low: Float[Array, "lanes two outer"]
    high: Float[Array, "lanes two outer"]
    previous: Int[Array, "lanes two outer"]
    following: Int[Array, "lanes two outer"]
    cuts: Int[Array, " lanes"]
    blend: Float[Array, " lanes"]
    bound: Float[Array, "lanes three coef"]
    scale: Float[Array, " lanes"]
    extra_ms: Float[Array, " lanes"]
    group: Int[Array, " lanes"]
    cells: Int[Array, "groups outer_cells inner_cells"]
    near: Float[Array, "rows columns"]


CELLS_PER_OCTAVE = 32
CELL_EDGE = 1e-6  # logarithms differ in their last bits between libraries
FLOOR = 1e-12
NARROW = 8  # leaves of an ordinary cell
WIDE_ROW = 1 << 24  # added to the row of a cell that lists more


def cell_index(xp: Any, log2_value: Any) -> Any:
    """Cell of a log2 coordinate; a cell's leaves allow for twice the edge tolerance."""
    return xp.floor(log2_value * CELLS_PER_OCTAVE + CELL_EDGE)


def segment_lines(xp: Any, value: Any, inner: Any, low: Any, high: Any) -> Any:
    """(intercept, slope) of each row segment from values at the inner keys.

    value[..., inner] holds the row's own line at every key in [low, high]; elsewhere both
    are 0. The last key of a row gets slope 0, so that the key itself answers exactly.
    """
    covered = (inner >= low[..., None]) & (inner <= high[..., None])
    last = xp.zeros_like(covered[..., :1])
    both = covered & xp.concatenate([covered[..., 1:], last], axis=-1)
    key = xp.where(xp.isfinite(inner), inner, 0.0)
    step = xp.concatenate([key[1:] - key[:-1], xp.ones_like(key[:1])])
    rise = xp.concatenate(
        [value[..., 1:] - value[..., :-1], xp.zeros_like(value[..., :1])], axis=-1
    )
    slope = xp.where(both, rise / xp.where(step > 0, step, 1.0), 0.0)
    intercept = xp.where(covered, value - slope * key, 0.0)
    return xp.stack([intercept, slope], axis=-1)


def _row(
    grid: GridStack,
    lane: Int[Array, ""],
    cut: int,
    row: Int[Array, ""],
    inner: Float[Array, ""],
    column: Int[Array, ""],
) -> tuple[Float[Array, ""], Bool[Array, ""]]:
    intercept = grid.line[lane, cut, row, column, 0]
    slope = grid.line[lane, cut, row, column, 1]
    inside = (inner >= grid.low[lane, cut, row]) & (inner <= grid.high[lane, cut, row])
    return intercept + slope * inner, inside


def _cut(
    grid: GridStack,
    lane: Int[Array, ""],
    cut: int,
    outer: Float[Array, ""],
    inner: Float[Array, ""],
    column: Int[Array, ""],
    context: bool,
) -> tuple[Float[Array, ""], Bool[Array, ""]]:
    """Value at one measured head count and whether the descent answers."""
    last = grid.outer.shape[0] - 1
    position = jnp.sum(outer > grid.outer, dtype=jnp.int32)
    exact = grid.outer[jnp.minimum(position, last)] == outer
    start = jnp.where(exact, position, position - 1)
    below = grid.previous[lane, cut, jnp.maximum(start, 0)]
    above = grid.following[lane, cut, jnp.minimum(position, last)]
    bracketed = (start >= 0) & (below >= 0) & (position <= last) & (above <= last)
    below, above = jnp.maximum(below, 0), jnp.minimum(above, last)
    lo_ms, lo_ok = _row(grid, lane, cut, below, inner, column)
    hi_ms, hi_ok = _row(grid, lane, cut, above, inner, column)
    lo_key, hi_key = grid.outer[below], grid.outer[above]
    same = below == above
    share = (outer - lo_key) / jnp.where(same, 1.0, hi_key - lo_key)
    share = jnp.where(same, 0.0, share)
    both = lo_ok & hi_ok
    if context:
        lo_root = jnp.sqrt(jnp.where(both, lo_ms, 1.0))
        hi_root = jnp.sqrt(jnp.where(both, hi_ms, 1.0))
        root = lo_root + share * (hi_root - lo_root)
        both_ms = jnp.where(same, lo_ms, root * root)
    else:
        both_ms = lo_ms + share * (hi_ms - lo_ms)
    key = jnp.where(lo_ok, lo_key, hi_key)
    moved = grid_sol_ms(jnp, context, grid.bound[lane, 0], key, inner)
    query = grid_sol_ms(jnp, context, grid.bound[lane, 0], outer, inner)
    one_ms = jnp.where(lo_ok, lo_ms, hi_ms) * _ratio(query, moved)
    return jnp.where(both, both_ms, one_ms), bracketed & (lo_ok | hi_ok)


def _ratio(query: Float[Array, ""], moved: Float[Array, ""]) -> Float[Array, ""]:
    usable = (moved > 0) & (query > 0)
    return jnp.where(usable, query / jnp.where(usable, moved, 1.0), 1.0)


def grid_lookup(
    grid: GridStack,
    lane: Int[Array, ""],
    outer: Float[Array, ""],
    inner: Float[Array, ""],
    *,
    context: bool,
    two_cuts: bool,
) -> tuple[Float[Array, ""], Bool[Array, ""]]:
    """Descent value, ms, and whether it answers (else the hold rule applies).

    `two_cuts` (static) says whether any lane lies between measured head counts.
    """
    column = jnp.maximum(jnp.sum(inner >= grid.inner, dtype=jnp.int32) - 1, 0)
    cuts = grid.cuts[lane]
    value, ok = _cut(grid, lane, 0, outer, inner, column, context)
    ok = ok & (cuts >= 1)
    if not two_cuts:
        return value, ok
    second, second_ok = _cut(grid, lane, 1, outer, inner, column, context)
    second_ok = second_ok & (cuts == 2)
    coef = jnp.where(ok, grid.bound[lane, 1], grid.bound[lane, 2])
    moved = grid_sol_ms(jnp, context, coef, outer, inner)
    query = grid_sol_ms(jnp, context, grid.bound[lane, 0], outer, inner)
    survivor = jnp.where(ok, value, second) * _ratio(query, moved)
    both = value + grid.blend[lane] * (second - value)
    blended = jnp.where(ok & second_ok, both, survivor)
    return jnp.where(cuts == 2, blended, value), ok | second_ok


def held_ms(
    grid: GridStack,
    lane: Int[Array, ""],
    outer: Float[Array, ""],
    inner: Float[Array, ""],
    *,
    context: bool,
    near: int,
) -> Float[Array, ""]:
    """Latency beyond the grid: SOL / utilisation of the nearest leaves, ms.

    `near` (static) leaves are read per cell; NaN in cells that list more.

    With R the fifth smallest log2 distance, weights are (max(R - d, 0) / (R d + 1e-12))^2
    (so only the four nearest count); equal weights where all are 0. NaN in cells that
    are not tabulated.
    """
    log_outer, log_inner = jnp.log2(outer), jnp.log2(inner)
    _, n_outer, n_inner = grid.cells.shape
    at_outer = cell_index(jnp, log_outer).astype(jnp.int32)
    at_inner = cell_index(jnp, log_inner).astype(jnp.int32)
    covered = (at_outer < n_outer) & (at_inner < n_inner) & (inner >= 1.0)
    row = grid.cells[
        grid.group[lane],
        jnp.clip(at_outer, 0, n_outer - 1),
        jnp.clip(at_inner, 0, n_inner - 1),
    ]
    row = jnp.where(covered, row, -1)
    # Rows that list more leaves than are read carry their count in a higher bit.
    wide = row >= WIDE_ROW
    row = jnp.where(wide, row - WIDE_ROW, row)
    covered = (row >= 0) & ~(wide & (near <= NARROW))
    util = _near_utilisation(grid.near, jnp.maximum(row, 0), log_outer, log_inner, near)
    sol = grid_sol_ms(jnp, context, grid.bound[lane, 0], outer, inner)
    return jnp.where(covered, sol / util, jnp.nan)


_ELEMENT = lax.GatherDimensionNumbers(
    offset_dims=(), collapsed_slice_dims=(0, 1), start_index_map=(0, 1)
)


def _element(
    table: Float[Array, "rows columns"], row: Int[Array, ""], column: int
) -> Float[Array, ""]:
    """table[row, column] without the bounds handling that row has had already."""
    at = lax.concatenate([lax.reshape(row, (1,)), lax.full((1,), column, row.dtype)], 0)
    return lax.gather(
        table,
        at,
        _ELEMENT,
        slice_sizes=(1, 1),
        mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS,
    )


def _near_utilisation(
    near: Float[Array, "rows columns"],
    row: Int[Array, ""],
    log_outer: Float[Array, ""],
    log_inner: Float[Array, ""],
    count: int,
) -> Float[Array, ""]:
    """Blend of the leaves nearer than the fifth, unrolled so that it fuses.

    Written with `lax` scalars: a general sort, reductions over so few leaves or a gather
    of whole rows cost several times as much, and jnp wrappers would dominate tracing.
    """
    columns = range(0, 4 * count, 4)
    square, leaf_outer, leaf_inner, util = (
        [_element(near, row, column + c) for column in columns] for c in range(4)
    )
    zero, one = lax.full_like(log_outer, 0.0), lax.full_like(log_outer, 1.0)
    floor, four = lax.full_like(log_outer, FLOOR), lax.full_like(log_outer, 4.0)
    distance = []
    for base, leaf_o, leaf_i in zip(square, leaf_outer, leaf_inner, strict=True):
        d_o, d_i = lax.sub(leaf_o, log_outer), lax.sub(leaf_i, log_inner)
        total = lax.add(base, lax.add(lax.mul(d_o, d_o), lax.mul(d_i, d_i)))
        distance.append(lax.sqrt(total))
    reach = _fifth_smallest(distance)
    total, blend, tied, taken = zero, zero, zero, zero
    for d, u in zip(distance, util, strict=True):
        gap = lax.select(lax.lt(d, reach), lax.sub(reach, d), zero)
        weight = lax.div(gap, lax.add(lax.mul(reach, d), floor))
        weight = lax.mul(weight, weight)
        total, blend = lax.add(total, weight), lax.add(blend, lax.mul(weight, u))
        # Five or more leaves at the same distance: the first four count equally.
        take = lax.bitwise_and(lax.le(d, reach), lax.lt(taken, four))
        tied = lax.add(tied, lax.select(take, u, zero))
        taken = lax.add(taken, lax.select(take, one, zero))
    weighted = lax.gt(total, zero)
    total = lax.select(weighted, total, one)
    return lax.select(weighted, lax.div(blend, total), lax.div(tied, four))


def _fifth_smallest(values: list[Float[Array, ""]]) -> Float[Array, ""]:
    """Order statistic by insertion into five sorted registers (no general sort).

    Compares and selects: minimum and maximum would also propagate NaN, at a price.
    """
    best = [lax.full_like(values[0], jnp.inf)] * 5
    for value in values:
        for slot in range(5):
            first = lax.lt(value, best[slot])
            best[slot], value = (
                lax.select(first, value, best[slot]),
                lax.select(first, best[slot], value),
            )
    return best[4]
