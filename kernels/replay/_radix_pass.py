"""One pass of one rank of the SGLang scheduler: reject, prefill a batch, or decode."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Float, Int

from .._arrays import Array
from ._radix_branch import pick, repeat, when
from ._radix_decode import plan_decode
from ._radix_logs import log_admission
from ._radix_pages import (
    Scene,
    available,
    looked_up,
    make_room,
    matched_pages,
    pin,
    release,
    take_pages,
)
from ._radix_requests import head_demand, length_of, reserved_tokens
from ._radix_reserve import promote
from ._radix_settle import settle
from ._radix_state import UNPRICED, RadixState, at, put, put_where


I32 = Int[Array, ""]
F64 = Float[Array, ""]


def admit(scene: Scene, state: RadixState, rank: I32) -> tuple[RadixState, I32]:
    """Form a prefill batch from the head of the queue; how many are in it."""
    limits = scene.engine.limits
    slots = scene.engine.slots - at(state.ranks.running, rank)
    page = scene.engine.page
    tokens = (available(state, rank) * page).astype(jnp.float64)
    ratio = at(state.ranks.ratio, rank)
    room = tokens - reserved_tokens(scene, state, rank, ratio, jnp.int32(0))
    zero = jnp.int32(0)
    query = jnp.zeros((3,), jnp.int32)

    def going(carry):
        state, taken, *_, go = carry
        return go & (at(state.ranks.head, rank) >= 0) & (taken < slots)

    def step(carry):
        state, taken, room, left, chunk_left, query, _, _ = carry
        row = at(state.ranks.head, rank)
        known = at(state.live.admitted, row) > 0
        node, match = zero, zero
        if scene.shape.nodes:
            node, match = pick(
                known,
                lambda _: (zero, zero),
                lambda s: matched_pages(scene, s, rank, row),
                state,
            )
            looked_up(state, match)
        before, chunk, cost, reserve, possible = head_demand(
            scene, state, row, match, chunk_left
        )
        fits = possible & ((cost + reserve).astype(jnp.float64) < room) & (cost <= left)

        def try_pages(carry):
            state, _ = carry
            state = when(~known, lambda s: pin(scene, s, rank, row, node, match), state)
            state, ok = make_room(scene, state, rank, cost // page)

            gives_up = ~ok & ~known
            return when(gives_up, lambda s: release(scene, s, rank, row), state), ok

        state, ok = when(fits, try_pages, (state, jnp.bool_(False)))

        def accept(state):
            state = take_pages(scene, state, rank, cost // page)
            live, ranks = state.live, state.ranks
            reuse = match * page
            again = at(live.admissions, row) > 0
            live = live._replace(
                owned=put(live.owned, row, before + chunk),
                admitted=put(live.admitted, row, 1),
                admissions=put(live.admissions, row, at(live.admissions, row) + 1),
                reuse=put(live.reuse, row, jnp.maximum(at(live.reuse, row), reuse)),
            )
            live = live._replace(
                admit_ms=put_where(~again, live.admit_ms, row, state.now),
                first_reuse=put_where(~again, live.first_reuse, row, reuse),
            )
            head = at(live.next, row)
            ranks = ranks._replace(
                head=put(ranks.head, rank, head),
                tail=put_where(head < 0, ranks.tail, rank, -1),
            )
            committed = state.totals.committed_tokens + chunk
            state = state._replace(
                live=live,
                ranks=ranks,
                batch=put(state.batch, taken, row),
                totals=state.totals._replace(committed_tokens=committed),
            )
            return log_admission(scene.shape, state, row, reuse, ~known)

        state = when(ok, accept, state)
        add = jnp.where(ok, 1, 0)
        spent = jnp.where(ok, cost, 0)
        priced = jnp.where(chunk > 0, add, 0)
        query = query + priced * jnp.stack([jnp.int32(1), before + chunk, before])
        room = room - jnp.where(ok, cost + reserve, 0)
        chunk_left = chunk_left - spent
        go = ok & (chunk_left > 0)
        return (
            state, taken + add, room, left - spent, chunk_left, query, ok, go,
        )  # fmt: skip

    start = (
        state, zero, room, limits.max_prefill_tokens,
        limits.chunked_prefill_tokens, query, jnp.bool_(True),
        jnp.bool_(True),
    )  # fmt: skip
    state, taken, _, _, _, query, _, _ = repeat(going, step, start)
    ranks = state.ranks
    state = state._replace(
        ranks=ranks._replace(prefill_query=ranks.prefill_query.at[rank].set(query))
    )
    # Only the last of a batch can be unfinished; it returns to the front.
    last = at(state.batch, jnp.maximum(taken - 1, 0))
    partial = (taken > 0) & (at(state.live.owned, last) < length_of(scene, state, last))
    ranks = state.ranks
    head = at(ranks.head, rank)
    live = state.live._replace(next=put_where(partial, state.live.next, last, head))
    ranks = ranks._replace(
        head=put_where(partial, ranks.head, rank, last),
        tail=put_where(partial & (head < 0), ranks.tail, rank, last),
    )
    return state._replace(live=live, ranks=ranks), taken


def _price_prefill(scene: Scene, state: RadixState, rank: I32) -> RadixState:
    query = state.ranks.prefill_query[rank]
    n = jnp.maximum(query[0], 1)
    price = scene.steps.prefill_ns(query[0], query[1] // n, query[2] // n)
    if scene.shape.prefill_workers:
        # A decode worker recomputes for free.
        price = jnp.where(rank < scene.shape.source_ranks, price, 0)
    in_ms = (price.astype(jnp.float64) / scene.engine.giga) * 1000.0
    # The maximum keeps the product from fusing with the sum to one rounding.
    end_ms = state.now + jnp.maximum(in_ms, 0.0)
    ranks, this = state.ranks, state.this
    computed = query[0] > 0
    return state._replace(
        status=jnp.where(price >= 0, state.status, UNPRICED).astype(jnp.int32),
        ranks=ranks._replace(own_end_ms=put(ranks.own_end_ms, rank, end_ms)),
        this=this._replace(
            worked=this.worked | computed,
            prefilled=this.prefilled | computed,
            effect=jnp.bool_(True),
            end_ms=jnp.maximum(this.end_ms, end_ms),
        ),
    )


def rank_pass(
    scene: Scene, state: RadixState, rank: I32, horizon_ms: F64
) -> RadixState:
    """Plan and carry out one pass; decode passes that nothing can disturb follow suit.

    horizon_ms: before which no arrival can reach this rank.
    """
    scene = scene.of_rank(rank)
    ranks, this = state.ranks, state.this
    rejecting = at(ranks.reject_head, rank)
    deferred = at(ranks.hold, rank) > 0
    hold = at(ranks.hold, rank) - jnp.where(deferred, 1, 0)
    zero = jnp.int32(0)
    ranks = ranks._replace(
        rejecting=put(ranks.rejecting, rank, rejecting),
        reject_head=put(ranks.reject_head, rank, -1),
        reject_tail=put(ranks.reject_tail, rank, -1),
        hold=put(ranks.hold, rank, hold),
        finishing=put(ranks.finishing, rank, zero),
        emitting=put(ranks.emitting, rank, zero),
        own_end_ms=put(ranks.own_end_ms, rank, state.now),
        prefill_query=ranks.prefill_query.at[rank].set(0),
        decode_query=ranks.decode_query.at[rank].set(0),
    )
    this = this._replace(
        deferred=this.deferred | deferred,
        effect=this.effect | deferred | (rejecting >= 0),
    )
    state = state._replace(ranks=ranks, this=this)
    able = ~deferred & (at(ranks.head, rank) >= 0)
    if state.handover is not None:
        # What was retracted waits until nothing waits for a reservation.
        able &= state.handover.asked[rank, 0] < 0
        state = promote(scene, state, rank)
    state, taken = when(able, lambda carry: admit(scene, carry[0], rank), (state, zero))
    state = when(taken > 0, lambda s: _price_prefill(scene, s, rank), state)
    state, members = when(
        taken == 0,
        lambda carry: plan_decode(scene, carry[0], rank, horizon_ms),
        (state, taken),
    )
    return settle(scene, state, rank, members, taken > 0)
