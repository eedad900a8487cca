"""The price of one forward pass from a stack of compiled deployments, for one query.

A deployment compiles into exact tables over the token count of a step (every operation
that depends on nothing else, summed) plus one attention grid per phase. Counts are
whole numbers carried as floats; results are ms, NaN where no table answers. `hold`
(static) includes the rule beyond the measured grid; without it such points are NaN.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ._bounds import context_sol_ms, generation_sol_ms
from ._grid import GridStack, grid_lookup, held_ms


class StepStack(NamedTuple):
    """Compiled deployments (lanes). Token tables are indexed by the token count itself.

    `generation_tokens_ms` includes the logits projection; for prefill it depends on the
    number of requests and lives in `logits_ms`. `context_apart` / `generation_apart`:
    attention is an operation of its own, which mixed steps price separately.
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
    rows_per_request: Float[Array, " lanes"]


class Options(NamedTuple):
    """Static choices: one compilation per value."""

    hold: bool
    two_cuts: bool
    context_parallel: bool
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
    value, ok = grid_lookup(
        grid, lane, outer, inner, context=context, two_cuts=options.two_cuts
    )
    other = jnp.nan
    if options.hold:
        other = held_ms(grid, lane, outer, inner, context=context)
    return jnp.where(ok, value, other)


def context_attention_ms(
    stack: StepStack,
    lane: Int[Array, ""],
    batch: Float[Array, ""],
    new: Float[Array, ""],
    prefix: Float[Array, ""],
    options: Options,
) -> Float[Array, ""]:
    """All layers of prefill attention, ms.

    table(full) (full^2 - prefix^2) / full^2 + extras. Context parallelism splits the new
    tokens into 2 cp zig-zag chunks of which a rank computes the first and the last.
    """
    grid = stack.context

    def cached(new_tokens, cached_tokens):
        if options.analytic:
            return context_sol_ms(
                jnp, grid.bound[lane, 0], batch, new_tokens, cached_tokens
            )
        full = new_tokens + cached_tokens
        share = (full * full - cached_tokens * cached_tokens) / (full * full)
        return _grid_ms(grid, lane, full, batch, True, options) * share

    cp = stack.cp[lane]
    if options.context_parallel:
        chunk = jnp.maximum(1.0, jnp.ceil(new / (2.0 * cp)))
        first = jnp.where(cp > 1, chunk, new)
        last = cached(chunk, prefix + new - chunk)
        unit = cached(first, prefix) + jnp.where(cp > 1, last, 0.0)
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
    """All layers of decode attention, ms.

    Mean of the grid at five lengths from int(0.9 S) to int(1.1 S); latent attention
    reads the grid once.
    """
    grid = stack.generation
    if options.analytic:
        unit = generation_sol_ms(jnp, grid.bound[lane, 0], rows, kv_len)
        return grid.scale[lane] * (unit + grid.extra_ms[lane])
    first = jnp.maximum(1.0, jnp.floor(0.9 * kv_len))
    last = jnp.maximum(first, jnp.floor(1.1 * kv_len))
    averaged = stack.averaged[lane]
    total = jnp.zeros_like(kv_len)
    for i in range(5):
        length = jnp.where(
            averaged, first + jnp.floor((last - first) * i / 4.0), kv_len
        )
        total = total + _grid_ms(grid, lane, rows, length, False, options)
    return grid.scale[lane] * (total / 5.0 + grid.extra_ms[lane])


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
    return (
        _at(stack.context_tokens_ms, lane, batch * new)
        + _at(stack.logits_ms, lane, batch)
        + context_attention_ms(stack, lane, batch, new, prefix, options)
    )


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


class MixedWork(NamedTuple):
    """A step with prefill and decode work, reduced to what its three parts need.

    Part 1 sees `tokens` tokens as one request after `prefix` cached ones; part 2 is
    prefill attention of `batch` requests of `new` tokens, divided by `passes`; part 3
    is decode attention of `rows` rows at `kv_len`. Empty parts have 0 tokens / rows.
    """

    tokens: Float[Array, ""]
    prefix: Float[Array, ""]
    batch: Float[Array, ""]
    new: Float[Array, ""]
    cached: Float[Array, ""]
    passes: Float[Array, ""]
    rows: Float[Array, ""]
    kv_len: Float[Array, ""]


def mixed_parts_ms(
    stack: StepStack, lane: Int[Array, ""], work: MixedWork, options: Options
) -> Float[Array, " three"]:
    """The three parts of a mixed step, ms (see MixedWork)."""
    ctx_apart, gen_apart = stack.context_apart[lane], stack.generation_apart[lane]
    tokens = _at(stack.context_tokens_ms, lane, work.tokens) + _at(
        stack.logits_ms, lane, jnp.ones_like(work.tokens)
    )
    has_context = work.batch > 0
    # Attention that is part of a measured block is priced as one long sequence.
    batch = jnp.where(ctx_apart, jnp.maximum(work.batch, 1.0), 1.0)
    new = jnp.where(ctx_apart, jnp.maximum(work.new, 1.0), work.tokens)
    cached = jnp.where(ctx_apart, work.cached, work.prefix)
    attention = context_attention_ms(stack, lane, batch, new, cached, options)
    part1 = tokens + jnp.where(ctx_apart, 0.0, attention)
    part2 = jnp.where(ctx_apart & has_context, attention / work.passes, 0.0)
    has_decode = gen_apart & (work.rows > 0)
    part3 = generation_attention_ms(
        stack,
        lane,
        jnp.maximum(work.rows, 1.0),
        jnp.maximum(work.kv_len, 1.0),
        options,
    )
    return jnp.stack([part1, part2, jnp.where(has_decode, part3, 0.0)])


def planned_work(
    context_tokens: Float[Array, ""],
    requests: Float[Array, ""],
    isl: Float[Array, ""],
    osl: Float[Array, ""],
    prefix: Float[Array, ""],
    rows_per_request: Float[Array, ""],
) -> MixedWork:
    """Work of a scheduler step with a context budget and `requests` decoding requests."""
    rows = requests * rows_per_request
    whole = prefix * jnp.floor(context_tokens / isl)
    return MixedWork(
        tokens=context_tokens + rows - whole,
        prefix=whole,
        batch=jnp.ceil(context_tokens / isl),
        new=isl - prefix,
        cached=prefix,
        passes=jnp.ceil(isl / jnp.maximum(context_tokens, 1.0)),
        rows=rows,
        kv_len=isl + jnp.floor(osl / 2.0) + 1.0,
    )


def mixed_ms(
    stack: StepStack,
    lane: Int[Array, ""],
    context_tokens: Float[Array, ""],
    requests: Float[Array, ""],
    isl: Float[Array, ""],
    osl: Float[Array, ""],
    prefix: Float[Array, ""],
    options: Options,
) -> Float[Array, ""]:
    """One mixed step: `context_tokens` of prefill and `requests` decoding requests."""
    work = planned_work(
        context_tokens, requests, isl, osl, prefix, stack.rows_per_request[lane]
    )
    return jnp.sum(mixed_parts_ms(stack, lane, work, options))


def scheduled_ms(
    stack: StepStack,
    lane: Int[Array, ""],
    prefill_requests: Float[Array, ""],
    new_tokens: Float[Array, ""],
    cached_tokens: Float[Array, ""],
    decode_requests: Float[Array, ""],
    kv_tokens: Float[Array, ""],
    options: Options,
) -> Float[Array, ""]:
    """One rank's forward pass from its five scheduled sums (averages are priced).

    Only prefill: requests of t // n tokens after k // n cached ones. Only decode: rows at
    kd // nd. Both: the three mixed parts. Nothing: 0.
    """
    has_prefill = new_tokens > 0
    has_decode = (decode_requests > 0) | (kv_tokens > 0)
    n = jnp.maximum(prefill_requests, 1.0)
    nd = jnp.maximum(decode_requests, 1.0)
    each_new = jnp.floor(new_tokens / n)
    each_cached = jnp.floor(cached_tokens / n)
    kv_len = jnp.floor(kv_tokens / nd)
    mixed_new = jnp.maximum(each_new, 1.0)
    work = MixedWork(
        tokens=jnp.where(has_prefill, new_tokens + decode_requests, 1.0),
        prefix=cached_tokens,
        batch=jnp.where(
            has_prefill, jnp.maximum(jnp.ceil(new_tokens / mixed_new), 1.0), 0.0
        ),
        new=mixed_new,
        cached=each_cached,
        passes=jnp.maximum(jnp.ceil(mixed_new / jnp.maximum(new_tokens, 1.0)), 1.0),
        rows=jnp.where(has_decode, decode_requests, 0.0),
        kv_len=jnp.maximum(kv_len, 1.0),
    )
    both = jnp.sum(mixed_parts_ms(stack, lane, work, options))
    prefill = prefill_ms(
        stack, lane, n, jnp.maximum(each_new, 1.0) + each_cached, each_cached, options
    )
    decode = decode_ms(stack, lane, nd, kv_len, options)
    return jnp.where(
        has_prefill & has_decode,
        both,
        jnp.where(has_prefill, prefill, jnp.where(has_decode, decode, 0.0)),
    )


def over_queries(function, options: Options, queries: int):
    """`function` vmapped over (lane, *counts), the stack and options shared."""

    def one(stack, lane, *counts):
        return function(stack, lane, *counts, options)

    return jax.vmap(one, in_axes=(None, 0, *([0] * queries)))
