"""What a planned pass does to its requests: tokens, pages, ends."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Bool, Int

from .._arrays import Array
from ._radix_branch import each, view, when
from ._radix_logs import log_leave
from ._radix_pages import Scene, ceil_div, make_room, store, take_pages
from ._radix_requests import close, emit, length_of, output_left
from ._radix_state import RadixState, at, put, put_where, seen


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
        from_run = at(
            state.ranks.run, jnp.minimum(first + i, state.ranks.run.values.size - 1)
        )
        return jnp.where(prefill, at(state.batch, jnp.minimum(i, slots - 1)), from_run)

    def count(i, pages):
        inside = view(state)
        row = row_of(inside, i)
        owned = at(inside.live.owned, row)
        whole = owned == length_of(scene, inside, row)
        more = ~prefill | (whole & (output_left(scene, inside, row) > 1))
        fresh = ceil_div(owned + passes, page) - ceil_div(owned, page)
        return pages + jnp.where(more, fresh, 0)

    pages = each(0, members, count, jnp.int32(0))
    live = state.live
    seen(pages, state.ranks.run, state.batch, live.owned, live.generated)
    state, _ = make_room(scene, state, rank, pages)

    def speak(state, row, second, room):
        """Tokens given to one member, and what becomes of it.

        First time: decoding requests get all theirs. Second time: prompts that are
        complete get their first, if there is room; what is not at its end is running.
        """
        live = state.live
        owned, made = at(live.owned, row), at(live.generated, row)
        left = at(scene.load.osl, row) - made
        whole = owned == at(scene.load.isl, row) + made
        done = second & (~prefill | whole)
        begins = second & prefill & whole
        more = begins & (left > 1) & room
        tokens = jnp.where(more | (begins & (left == 1)), 1, 0)
        tokens = jnp.where(second | prefill, tokens, passes)
        stored = jnp.where(more, 1, jnp.where(second | prefill, 0, passes))
        early = prefill | ((owned + passes - 1) // page > owned // page)
        late = ((owned + stored) % page == 0) & (more | ~prefill)
        ended = done & (left - tokens <= 0)
        live = live._replace(
            generated=put(live.generated, row, made + tokens),
            owned=put(live.owned, row, owned + stored),
        )
        state = when(
            tokens > 0,
            lambda s: emit(scene, s, rank, row),
            state._replace(live=live),
        )
        return state, jnp.where(second, late, early), ended, done & ~ended

    def half(carry):
        """Between the two: the pages of the tokens are taken, if they are there."""
        state, _, _ = carry
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
        state, room, clock = when(step == members, half, (state, room, clock))
        i = jnp.where(second, step - members, step)
        row = row_of(state, i)
        decoding = second & ~prefill
        turn = jnp.where(decoding, ticks(clock, passes, i), state.tree.clock + 1)
        state = state._replace(tree=state.tree._replace(clock=turn))
        state, full, ended, stays = speak(state, row, second, room)
        state = when(full, lambda s: store(scene, s, rank, row), state)
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
            state = log_leave(scene.shape, state, rank, row, decoding)
            return close(scene, state, rank, row)

        return when(ended, end, state), room, clock

    start = state, jnp.bool_(False), state.tree.clock
    state, _, clock = each(0, 2 * members, visit, start)
    decoded = jnp.where(prefill, state.tree.clock, ticks(clock, passes + 1, 0))
    tree = state.tree._replace(clock=jnp.maximum(state.tree.clock, decoded))
    return state._replace(tree=tree)
