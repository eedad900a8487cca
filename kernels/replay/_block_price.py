"""Ends of passes: float64 ms, one addition for prefill and one for decode."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int

from .._arrays import Array
from ._block_plan import Work
from ._block_state import BlockLane, BlockShape
from ._radix_branch import repeat
from ._timing import quotient, rounded


Count = Int[Array, ""]
WINDOW = 8


def length_ms(ns: Int[Array, "*n"], now_ms: Float[Array, ""]) -> Float[Array, "*n"]:
    """(ns / 1e9) * 1000, rounded step by step; now_ms: any instant (see `rounded`)."""
    return rounded(quotient(ns.astype("float64"), 1e9, ns) * 1000.0, now_ms)


def after_ns(start_ms: Float[Array, ""], ns: Int[Array, ""]) -> Float[Array, ""]:
    """The instant `ns` after start_ms."""
    return start_ms + length_ms(ns, start_ms)


def pass_end(
    lane: BlockLane,
    shape: BlockShape,
    pool: Count,
    work: Work,
    start_ms: Float[Array, ""],
) -> tuple[Float[Array, ""], Int[Array, ""]]:
    """(end, least price): a prefill pool pays no decode, a decode pool no prefill."""
    prefill_steps, decode_steps = lane.steps[0], lane.steps[-1]

    def prefill() -> Int[Array, ""]:
        n = jnp.maximum(work.prefill, 1)
        isl, prefix = work.through // n, work.prefix // n
        return prefill_steps.prefill_ns(work.prefill, isl, prefix)

    def decode() -> Int[Array, ""]:
        return decode_steps.decode_ns(work.decode, work.context)

    def nothing() -> Int[Array, ""]:
        return jnp.int64(0)

    pays_decode = (work.decode > 0) & (pool == shape.pools - 1)
    prefill_ns = jax.lax.cond(work.prefill > 0, prefill, nothing)
    decode_ns = jax.lax.cond(pays_decode, decode, nothing)
    end_ms = after_ns(after_ns(start_ms, prefill_ns), decode_ns)
    return end_ms, jnp.minimum(prefill_ns, decode_ns)


def decode_walk(
    lane: BlockLane,
    requests: Count,
    context: Count,
    start_ms: Float[Array, ""],
    most: Count,
    until_ms: Float[Array, ""],
) -> tuple[Count, Float[Array, ""]]:
    """(passes, end): decode passes of the same members up to the first end >= until.

    `context` is the first pass's; it grows by `requests` a pass. At most `most` passes;
    a pass without a length, or without a price, ends the walk before it.
    """
    steps = lane.steps[-1]
    numbers = jnp.arange(WINDOW, dtype=jnp.int32)
    many = jnp.broadcast_to(requests, (WINDOW,))

    def going(carry: Any) -> Any:
        return (carry[0] < most) & ~carry[2]

    def window(carry: Any) -> Any:
        done, at_ms, stop = carry
        prices = steps.decode_ns(many, context + requests * (done + numbers))
        lengths = length_ms(prices, start_ms)

        def inside(carry: Any) -> Any:
            i, _, stop = carry
            return (i < WINDOW) & (done + i < most) & ~stop

        def add(carry: Any) -> Any:
            i, at_ms, _ = carry
            after = at_ms + lengths[i]
            moves = after > at_ms
            at_ms = jnp.where(moves, after, at_ms)
            return i + moves, at_ms, ~moves | (at_ms >= until_ms)

        i, at_ms, stop = repeat(inside, add, (jnp.int32(0), at_ms, stop))
        return done + i, at_ms, stop

    start = (jnp.int32(0), start_ms, start_ms >= until_ms)
    done, at_ms, _ = repeat(going, window, start)
    return done, at_ms
