"""What the two kinds of pass ask about requests, and how a request ends."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from .._arrays import Array
from ._radix_branch import each, view, when
from ._radix_pages import Scene, ceil_div, release
from ._radix_state import RadixState, at, put, seen


I32 = Int[Array, ""]
F64 = Float[Array, ""]


def length_of(scene: Scene, state: RadixState, row: I32) -> I32:
    """Prompt and generated tokens."""
    return at(scene.load.isl, row) + at(state.live.generated, row)


def output_left(scene: Scene, state: RadixState, row: I32) -> I32:
    """Tokens still to generate."""
    return at(scene.load.osl, row) - at(state.live.generated, row)


def reserved_tokens(
    scene: Scene, state: RadixState, rank: I32, ratio: F64, passes: I32
) -> F64:
    """Room that the running requests are expected to need, so many passes later."""
    limits = scene.engine.limits

    def add(i, total):
        inside = view(state)
        row = at(inside.ranks.run, rank * scene.shape.slots + i)
        left = output_left(scene, inside, row) - passes
        kept = jnp.minimum(left, limits.clip_tokens).astype(jnp.float64)
        # The maximum keeps the product from fusing with the sum to one rounding.
        return total + jnp.maximum(kept * ratio, 0.0)

    total = each(0, at(state.ranks.running, rank), add, jnp.float64(0.0))
    seen((total < 0).astype(jnp.int32), state.ranks.run, state.live.generated)
    return total


def head_demand(
    scene: Scene, state: RadixState, row: I32, reuse_pages: I32, left_chunk: I32
) -> tuple[I32, I32, I32, I32, Bool[Array, ""]]:
    """(tokens before, chunk, its cost in whole pages, reserve, whether it is possible)."""
    page, limits = scene.engine.page, scene.engine.limits
    before = jnp.maximum(at(state.live.owned, row), reuse_pages * page)
    need = length_of(scene, state, row) - before
    whole = need <= left_chunk
    chunk = jnp.where(whole, need, left_chunk // page * page)
    left = output_left(scene, state, row)
    reserve = jnp.where(whole, jnp.minimum(left, limits.clip_tokens), 0)
    cost = ceil_div(chunk, page) * page
    possible = (whole | (chunk > 0)) & (cost <= left_chunk)
    return before, chunk, cost, reserve.astype(jnp.int32), possible


def close(scene: Scene, state: RadixState, rank: I32, row: I32) -> RadixState:
    """End a request whose pages are stored; it is reported at the pass end.

    A prefill worker keeps the pages until they have been handed over.
    """
    if scene.shape.prefill_workers:
        decodes = rank >= scene.shape.source_ranks
        state = when(decodes, lambda s: release(scene, s, rank, row), state)
    else:
        state = release(scene, state, rank, row)
    ranks = state.ranks
    count = at(ranks.finishing, rank)
    place = rank * scene.shape.slots + count
    ranks = ranks._replace(
        finish=put(ranks.finish, place, row),
        finishing=put(ranks.finishing, rank, count + 1),
    )
    return state._replace(ranks=ranks)


def emit(scene: Scene, state: RadixState, rank: I32, row: I32) -> RadixState:
    """A token of this request becomes visible at the pass end."""
    ranks = state.ranks
    count = at(ranks.emitting, rank)
    ranks = ranks._replace(
        emit=put(ranks.emit, rank * scene.shape.slots + count, row),
        emitting=put(ranks.emitting, rank, count + 1),
    )
    return state._replace(ranks=ranks)
