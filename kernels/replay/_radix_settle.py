"""What a planned pass does to its requests: tokens, pages, ends."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jaxtyping import Bool, Int

from .._arrays import Array
from ._radix_logs import log_leave
from ._radix_pages import Scene, ceil_div, make_room, store, take_pages
from ._radix_requests import close, emit, length_of, output_left
from ._radix_state import RadixState, at, put, put_where


I32 = Int[Array, ""]


def settle(
    scene: Scene, state: RadixState, rank: I32, members: I32, prefill: Bool[Array, ""]
) -> RadixState:
    """Carry out a prefill pass over the batch, or `passes` decode passes over all.

    One loop goes twice over the members, so that the tree operations are compiled once:
    first the pages that are full before the last token are stored, then the last (in a
    prefill pass the first) tokens are given and finished requests end, in order.
    """
    page, slots = scene.engine.page, scene.shape.slots
    first = rank * slots
    passes = jnp.where(prefill, 1, state.this.passes)

    def row_of(state, i):
        from_run = at(state.ranks.run, jnp.minimum(first + i, state.ranks.run.size - 1))
        return jnp.where(prefill, at(state.batch, jnp.minimum(i, slots - 1)), from_run)

    def complete(state, row):
        return ~prefill | (at(state.live.owned, row) == length_of(scene, state, row))

    def count(i, pages):
        row = row_of(state, i)
        more = ~prefill | (complete(state, row) & (output_left(scene, state, row) > 1))
        owned = at(state.live.owned, row)
        fresh = ceil_div(owned + passes, page) - ceil_div(owned, page)
        return pages + jnp.where(more, fresh, 0)

    pages = lax.fori_loop(0, members, count, jnp.int32(0))
    state, _ = make_room(scene, state, rank, pages)

    def speak(state, row, tokens, stored):
        live = state.live
        live = live._replace(
            generated=put(live.generated, row, at(live.generated, row) + tokens),
            owned=put(live.owned, row, at(live.owned, row) + stored),
        )
        state = state._replace(live=live)
        return lax.cond(
            tokens > 0, lambda s: emit(scene, s, rank, row), lambda s: s, state
        )

    def early(state, row):
        """First time: decoding requests get all their tokens."""
        owned = at(state.live.owned, row)
        many = jnp.where(prefill, 0, passes)
        full = (owned + passes - 1) // page > owned // page
        state = speak(state, row, many, many)
        return state, prefill | full, jnp.bool_(False), jnp.bool_(False)

    def late(state, row, room):
        """Second time: finished prompts speak; what goes on is running."""
        left = output_left(scene, state, row)
        done = complete(state, row)
        on = prefill & done & (left > 1) & room
        stored = jnp.where(on, 1, 0)
        tokens = jnp.where(on | (prefill & done & (left == 1)), 1, 0)
        ended = done & (left - tokens <= 0)
        state = speak(state, row, tokens, stored)
        full = (at(state.live.owned, row) % page == 0) & (on | ~prefill)
        return state, full, ended, done & ~ended

    def half(state):
        """Between the two: the pages of the tokens are taken, if they are there."""
        room = at(state.ranks.free, rank) >= pages
        state = take_pages(scene, state, rank, jnp.where(room, pages, 0))
        running = jnp.where(prefill, at(state.ranks.running, rank), 0)
        ranks = state.ranks._replace(running=put(state.ranks.running, rank, running))
        return state._replace(ranks=ranks), room, state.tree.clock

    # Uses are ordered by pass, then by place in the batch; a use takes up to 4 ticks.
    def ticks(clock, pass_number, place):
        return clock + 4 * (pass_number.astype(jnp.int64) * slots + place)

    def visit(step, carry):
        state, room, clock = carry
        second = step >= members
        state, room, clock = lax.cond(
            step == members, half, lambda s: (s, room, clock), state
        )
        i = jnp.where(second, step - members, step)
        row = row_of(state, i)
        decoding = second & ~prefill
        turn = jnp.where(decoding, ticks(clock, passes, i), state.tree.clock + 1)
        state = state._replace(tree=state.tree._replace(clock=turn))
        state, full, ended, stays = lax.cond(
            second, lambda s: late(s, row, room), lambda s: early(s, row), state
        )
        state = lax.cond(full, lambda s: store(scene, s, rank, row), lambda s: s, state)
        filled = passes - at(state.live.owned, row) % page
        earlier = ticks(clock, filled, i) + 3
        used = jnp.where(full | ended, state.tree.clock, earlier)
        marks = second & (ended | (decoding & (filled >= 1)))
        live, ranks = state.live, state.ranks
        running = at(ranks.running, rank)
        joins = stays & prefill
        live = live._replace(
            used=put_where(marks, live.used, row, used),
            joined=put_where(joins, live.joined, row, at(ranks.decode_passes, rank)),
        )
        ranks = ranks._replace(
            run=put_where(stays, ranks.run, first + running, row),
            running=put(ranks.running, rank, running + jnp.where(stays, 1, 0)),
        )
        state = state._replace(live=live, ranks=ranks)

        def end(state):
            return close(scene, log_leave(scene.shape, state, rank, row), rank, row)

        return lax.cond(ended, end, lambda s: s, state), room, clock

    start = state, jnp.bool_(False), state.tree.clock
    state, _, clock = lax.fori_loop(0, 2 * members, visit, start)
    decoded = jnp.where(prefill, state.tree.clock, ticks(clock, passes + 1, 0))
    tree = state.tree._replace(clock=jnp.maximum(state.tree.clock, decoded))
    return state._replace(tree=tree)
