"""The price of one forward pass from a stack of compiled deployments, for one query.

A deployment compiles into exact tables over the token count of a step (every operation
that depends on nothing else, summed) plus one attention grid per phase. Counts are
whole numbers carried as floats; results are ms, NaN where no table answers.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from ._arrays import Array
from ._bounds import context_sol_ms, generation_sol_ms
from ._grid import GridStack, grid_lookup, held_ms
from ._work import MixedWork, context_spans, decode_lengths


class StepStack(NamedTuple):
    """Compiled deployments (lanes). Token tables are indexed by the token count itself.

    `generation_tokens_ms` includes the logits projection; for prefill it depends on the
    number of requests and lives in `logits_ms`. `context_apart` / `generation_apart`:
    attention is an operation of its own, which mixed steps price separately.
    `averaged`: decode attention is the mean over lengths around the query; `cp`: ranks
    that share the sequence of a prefill (>= 1).
    """

    context_tokens_ms: Float[Array, "lanes context_pts"]
    generation_tokens_ms: Float[Array, "lanes generation_pts"]
    logits_ms: Float[Array, "lanes logits_pts"]
    context: GridStack
    generation: GridStack
    context_apart: Bool[Array, " lanes"]
    generation_apart: Bool[Array, " lanes"]
    averaged: Bool[Array, " lanes"]
    cp: Float[Array, " lanes"]


class Options(NamedTuple):
    """Static choices: one compilation per value.

    grid / hold: answer inside the measured grid / beyond it (either may be left out where
    the caller knows the other side). near: leaves per cell that the hold rule reads.
    two_cuts, context_parallel, averaging: whether any lane needs that rule. analytic:
    attention at its speed of light, grids unread.
    """

    grid: bool
    hold: bool
    near: int
    unrolled: bool
    two_cuts: bool
    context_parallel: bool
    averaging: bool
    analytic: bool


def _at(
    table: Float[Array, "lanes pts"], lane: Int[Array, ""], index: Float[Array, ""]
) -> Float[Array, ""]:
    size = table.shape[1]
    value = table[lane, jnp.clip(index, 0, size - 1).astype(jnp.int32)]
    return jnp.where(index < size, value, jnp.nan)


def _grid_ms(
    grid: GridStack, lane, outer, inner, context: bool, options: Options
) -> Float[Array, ""]:
    beyond = jnp.nan
    if options.hold:
        beyond = held_ms(grid, lane, outer, inner, context=context, near=options.near)
    if not options.grid:
        return jnp.asarray(beyond)
    value, ok = grid_lookup(
        grid, lane, outer, inner, context=context, two_cuts=options.two_cuts
    )
    return jnp.where(ok, value, beyond)


def context_attention_ms(
    stack: StepStack,
    lane: Int[Array, ""],
    batch: Float[Array, ""],
    new: Float[Array, ""],
    prefix: Float[Array, ""],
    options: Options,
) -> Float[Array, ""]:
    """All layers of prefill attention, ms: table(full) (full^2 - prefix^2) / full^2."""
    grid = stack.context

    def cached(new_tokens, cached_tokens):
        if options.analytic:
            return context_sol_ms(
                jnp, grid.bound[lane, 0], batch, new_tokens, cached_tokens
            )
        full = new_tokens + cached_tokens
        share = (full * full - cached_tokens * cached_tokens) / (full * full)
        return _grid_ms(grid, lane, full, batch, True, options) * share

    if options.context_parallel:
        cp = stack.cp[lane]
        first, last = context_spans(jnp, new, prefix, cp)
        unit = cached(*first) + jnp.where(cp > 1, cached(*last), 0.0)
    else:
        unit = cached(new, prefix)
    return grid.scale[lane] * (unit + grid.extra_ms[lane])


def generation_attention_ms(
    stack: StepStack,
    lane: Int[Array, ""],
    rows: Float[Array, ""],
    kv_len: Float[Array, ""],
    options: Options,
) -> Float[Array, ""]:
    """All layers of decode attention, ms: the mean over five lengths around kv_len.

    Latent attention (not averaged) reads its grid once.
    """
    grid = stack.generation
    if options.analytic:
        unit = generation_sol_ms(jnp, grid.bound[lane, 0], rows, kv_len)
    elif options.averaging:
        averaged = stack.averaged[lane]
        lengths = [
            jnp.where(averaged, length, kv_len)
            for length in decode_lengths(jnp, kv_len)
        ]

        def at(length: Float[Array, ""]) -> Float[Array, ""]:
            return _grid_ms(grid, lane, rows, length, False, options)

        if options.unrolled:
            first, *others = (at(length) for length in lengths)
            unit = sum(others, first) / 5.0
        else:
            unit = jnp.mean(jax.vmap(at)(jnp.stack(lengths)))
    else:
        unit = _grid_ms(grid, lane, rows, kv_len, False, options)
    return grid.scale[lane] * (unit + grid.extra_ms[lane])


def prefill_ms(
    stack: StepStack,
    lane: Int[Array, ""],
    batch: Float[Array, ""],
    isl: Float[Array, ""],
    prefix: Float[Array, ""],
    options: Options,
) -> Float[Array, ""]:
    """Prefill of `batch` requests of isl tokens of which `prefix` (< isl) are cached."""
    new = isl - prefix
    value = (
        _at(stack.context_tokens_ms, lane, batch * new)
        + _at(stack.logits_ms, lane, batch)
        + context_attention_ms(stack, lane, batch, new, prefix, options)
    )
    return jnp.where(new > 0, value, jnp.nan)


def decode_ms(
    stack: StepStack,
    lane: Int[Array, ""],
    rows: Float[Array, ""],
    kv_len: Float[Array, ""],
    options: Options,
) -> Float[Array, ""]:
    """One decode step of `rows` query rows whose newest token sees kv_len tokens."""
    return _at(stack.generation_tokens_ms, lane, rows) + generation_attention_ms(
        stack, lane, rows, kv_len, options
    )


def mixed_parts_ms(
    stack: StepStack, lane: Int[Array, ""], work: MixedWork, options: Options
) -> Float[Array, " three"]:
    """The three parts of a mixed step, ms (see MixedWork).

    Attention that belongs to a measured block is priced in part 1 as one long sequence.
    """
    ctx_apart, gen_apart = stack.context_apart[lane], stack.generation_apart[lane]
    batch = jnp.where(ctx_apart, jnp.maximum(work.batch, 1.0), 1.0)
    new = jnp.where(ctx_apart, work.new, work.tokens)
    cached = jnp.where(ctx_apart, work.cached, work.prefix)
    attention = context_attention_ms(stack, lane, batch, new, cached, options)
    tokens = _at(stack.context_tokens_ms, lane, work.tokens) + _at(
        stack.logits_ms, lane, jnp.ones_like(work.tokens)
    )
    decode = generation_attention_ms(
        stack, lane, jnp.maximum(work.rows, 1.0), work.kv_len, options
    )
    return jnp.stack(
        [
            tokens + jnp.where(ctx_apart, 0.0, attention),
            jnp.where(ctx_apart & (work.batch > 0), attention / work.passes, 0.0),
            jnp.where(gen_apart & (work.rows > 0), decode, 0.0),
        ]
    )


def mixed_ms(
    stack: StepStack, lane: Int[Array, ""], *counts_and_options
) -> Float[Array, ""]:
    """Sum of the three parts; counts are the fields of MixedWork, options last."""
    *counts, options = counts_and_options
    return jnp.sum(mixed_parts_ms(stack, lane, MixedWork(*counts), options))


def over_queries(function, options: Options, counts: int):
    """`function` vmapped over (lane, *counts), the stack and options shared."""

    def one(stack, lane, *values):
        return function(stack, lane, *values, options)

    return jax.vmap(one, in_axes=(None, 0, *([0] * counts)))
