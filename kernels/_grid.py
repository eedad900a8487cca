"""Look-ups in stacks of ragged attention grids, for one query each.

A stack holds one prepared slice per lane (deployment) on shared axes. Coordinates are
(outer, inner): prefill attention (full sequence, batch) with a square-root outer axis,
decode attention (batch, KV length). See `GridStack` for the layout. Everything here is
written for one query; `vmap` at the boundary.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ._bounds import context_sol_ms, generation_sol_ms


class GridStack(NamedTuple):
    """Prepared slices of many lanes.

    Row r of cut c answers for inner coordinates in [low, high]; rows that were not
    measured are skipped through `previous` and `following`. `heads` lies between the
    head counts of the two cuts where `blend` is in (0, 1); `cuts` counts the usable ones.
    `bound` holds speed-of-light coefficients at the query's heads (entry 0) and at the
    heads of each cut (entries 1, 2).
    """

    outer: Float[Array, " outer"]
    inner: Float[Array, " inner"]
    value_ms: Float[Array, "lanes two outer inner"]
    low: Float[Array, "lanes two outer"]
    high: Float[Array, "lanes two outer"]
    previous: Int[Array, "lanes two outer"]
    following: Int[Array, "lanes two outer"]
    cuts: Int[Array, " lanes"]
    blend: Float[Array, " lanes"]
    bound: Float[Array, "lanes three coef"]
    hold_group: Int[Array, " lanes"]
    hold_leaves: Float[Array, "groups leaves four"]
    hold_cells: Int[Array, "groups outer_cells inner_cells near"]
    scale: Float[Array, " lanes"]
    extra_ms: Float[Array, " lanes"]


CELL_OCTAVES = 0.5
FLOOR = 1e-12


def _sol(context: bool, coef, outer, inner):
    if context:
        return context_sol_ms(jnp, coef, inner, outer, 0.0)
    return generation_sol_ms(jnp, coef, outer, inner)


def _row(
    grid: GridStack,
    lane: Int[Array, ""],
    cut: int,
    row: Int[Array, ""],
    inner: Float[Array, ""],
    column: Int[Array, ""],
    share: Float[Array, ""],
) -> tuple[Float[Array, ""], Bool[Array, ""]]:
    a = grid.value_ms[lane, cut, row, column]
    b = grid.value_ms[lane, cut, row, column + 1]
    inside = (inner >= grid.low[lane, cut, row]) & (inner <= grid.high[lane, cut, row])
    return a + share * (b - a), inside


def _cut(
    grid: GridStack,
    lane: Int[Array, ""],
    cut: int,
    outer: Float[Array, ""],
    inner: Float[Array, ""],
    at: tuple[Int[Array, ""], Bool[Array, ""]],
    column: Int[Array, ""],
    share: Float[Array, ""],
    *,
    context: bool,
) -> tuple[Float[Array, ""], Bool[Array, ""]]:
    """Value at one measured head count and whether the descent answers."""
    last = grid.outer.shape[0] - 1
    position, exact = at
    below_at = jnp.where(exact, position, position - 1)
    below = grid.previous[lane, cut, jnp.maximum(below_at, 0)]
    above = grid.following[lane, cut, jnp.minimum(position, last)]
    has = (below_at >= 0) & (below >= 0) & (position <= last) & (above <= last)
    below, above = jnp.maximum(below, 0), jnp.minimum(above, last)
    lo_ms, lo_ok = _row(grid, lane, cut, below, inner, column, share)
    hi_ms, hi_ok = _row(grid, lane, cut, above, inner, column, share)
    lo_key, hi_key = grid.outer[below], grid.outer[above]
    same = below == above
    w = jnp.where(same, 0.0, (outer - lo_key) / jnp.where(same, 1.0, hi_key - lo_key))
    if context:
        a, b = jnp.sqrt(jnp.where(lo_ok, lo_ms, 1.0)), jnp.sqrt(
            jnp.where(hi_ok, hi_ms, 1.0)
        )
        root = a + w * (b - a)
        both_ms = jnp.where(same, lo_ms, root * root)
    else:
        both_ms = lo_ms + w * (hi_ms - lo_ms)
    key = jnp.where(lo_ok, lo_key, hi_key)
    moved = _sol(context, grid.bound[lane, 0], key, inner)
    query = _sol(context, grid.bound[lane, 0], outer, inner)
    usable = (moved > 0) & (query > 0)
    ratio = jnp.where(usable, query / jnp.where(usable, moved, 1.0), 1.0)
    one_ms = jnp.where(lo_ok, lo_ms, hi_ms) * ratio
    value = jnp.where(lo_ok & hi_ok, both_ms, one_ms)
    return value, has & (lo_ok | hi_ok)


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
    position = jnp.sum(outer > grid.outer, dtype=jnp.int32)
    last = grid.outer.shape[0] - 1
    exact = grid.outer[jnp.minimum(position, last)] == outer
    exact = exact & (position <= last)
    right = jnp.sum(inner >= grid.inner, dtype=jnp.int32)
    column = jnp.clip(right - 1, 0, grid.inner.shape[0] - 2)
    left_key, right_key = grid.inner[column], grid.inner[column + 1]
    share = (inner - left_key) / (right_key - left_key)
    # At the last column of a row the right neighbour is unfilled: step back onto it.
    at = (position, exact)
    value, ok = _cut(
        grid, lane, 0, outer, inner, at, column, share, context=context
    )
    ok = ok & (grid.cuts[lane] >= 1)
    if not two_cuts:
        return value, ok
    second, second_ok = _cut(
        grid, lane, 1, outer, inner, at, column, share, context=context
    )
    second_ok = second_ok & (grid.cuts[lane] == 2)
    between = grid.cuts[lane] == 2
    query = _sol(context, grid.bound[lane, 0], outer, inner)
    moved = _sol(
        context,
        jnp.where(ok, grid.bound[lane, 1], grid.bound[lane, 2]),
        outer,
        inner,
    )
    usable = (moved > 0) & (query > 0)
    ratio = jnp.where(usable, query / jnp.where(usable, moved, 1.0), 1.0)
    survivor = jnp.where(ok, value, second) * ratio
    both = value + grid.blend[lane] * (second - value)
    blended = jnp.where(ok & second_ok, both, survivor)
    return jnp.where(between, blended, value), ok | second_ok


def held_ms(
    grid: GridStack,
    lane: Int[Array, ""],
    outer: Float[Array, ""],
    inner: Float[Array, ""],
    *,
    context: bool,
) -> Float[Array, ""]:
    """Latency beyond the grid: SOL / utilisation of the nearest leaves, ms.

    With R the fifth smallest log2 distance, weights are (max(R - d, 0) / (R d + 1e-12))^2.
    NaN where the query lies outside the tabulated cells.
    """
    group = grid.hold_group[lane]
    log_outer, log_inner = jnp.log2(outer), jnp.log2(inner)
    cell_outer = jnp.floor(log_outer / CELL_OCTAVES).astype(jnp.int32)
    cell_inner = jnp.floor(log_inner / CELL_OCTAVES).astype(jnp.int32)
    _, n_outer, n_inner, _ = grid.hold_cells.shape
    covered = (cell_outer < n_outer) & (cell_inner < n_inner)
    near = grid.hold_cells[
        group,
        jnp.clip(cell_outer, 0, n_outer - 1),
        jnp.clip(cell_inner, 0, n_inner - 1),
    ]
    leaf = grid.hold_leaves[group, near]  # [near, four]
    d_outer, d_inner = leaf[:, 1] - log_outer, leaf[:, 2] - log_inner
    distance = jnp.sqrt(leaf[:, 0] + d_outer * d_outer + d_inner * d_inner)
    reach = jnp.sort(distance)[4]
    weight = jnp.square(
        jnp.maximum(reach - distance, 0.0) / (reach * distance + FLOOR)
    )
    tie = (distance <= reach).astype(distance.dtype)
    first_four = tie * (jnp.cumsum(tie) <= 4)
    weight = jnp.where(jnp.sum(weight) > 0, weight, first_four)
    util = jnp.sum(weight * leaf[:, 3]) / jnp.sum(weight)
    sol = _sol(context, grid.bound[lane, 0], outer, inner)
    return jnp.where(covered, sol / util, jnp.nan)
