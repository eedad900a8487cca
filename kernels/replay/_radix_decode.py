"""Decode passes of one rank: retraction, and runs of passes that nothing disturbs."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Bool, Float, Int

from .._arrays import Array
from ._radix_branch import each, pick, repeat, view, when
from ._radix_logs import log_leave
from ._radix_pages import (
    Scene,
    available,
    ceil_div,
    looked_up,
    make_room,
    matched_pages,
    release,
)
from ._radix_requests import (
    head_demand,
    length_of,
    output_left,
    reserved_tokens,
)
from ._radix_state import (
    NEEDS_TREE,
    UNPRICED,
    RadixState,
    at,
    put,
    put_where,
    seen,
)


I32 = Int[Array, ""]
F64 = Float[Array, ""]


class _Batch(NamedTuple):
    """Sums over the running requests of a rank."""

    needed: I32  # pages for one more token each
    context: I32
    left: I32  # least output to come
    generated: I32
    output: I32
    met: I32  # requests whose next pages may be in the tree, or be put there by another


def _batch(scene: Scene, state: RadixState, rank: I32) -> _Batch:
    page = scene.engine.page

    def add(i, sums):
        inside = view(state)
        row = at(inside.ranks.run, rank * scene.shape.slots + i)
        boundary = at(inside.live.owned, row) % page == 0
        return _Batch(
            sums.needed + jnp.where(boundary, 1, 0),
            sums.context + length_of(scene, inside, row),
            jnp.minimum(sums.left, output_left(scene, inside, row)),
            sums.generated + at(inside.live.generated, row),
            sums.output + at(scene.load.osl, row),
            sums.met + meets(inside, row),
        )

    def meets(inside, row):
        if not (scene.shape.nodes and scene.shape.pages):
            return 0
        node = jnp.maximum(at(inside.live.node, row), 0)
        shared = (at(inside.tree.child, node) >= 0) | (at(inside.tree.locks, node) > 1)
        return jnp.where(shared, 1, 0)

    zero = jnp.int32(0)
    start = _Batch(zero, zero, jnp.int32(2**30), zero, zero, zero)
    sums = each(0, at(state.ranks.running, rank), add, start)
    live = state.live
    seen(sums.context, state.ranks.run, live.owned, live.generated)
    if scene.shape.nodes:
        seen(sums.met, live.node, state.tree.child, state.tree.locks)
    return sums


def _remove_running(
    scene: Scene, state: RadixState, rank: I32, place: I32
) -> RadixState:
    first = rank * scene.shape.slots
    count = at(state.ranks.running, rank)

    def shift(i, run):
        return put(run, first + i, at(run, first + i + 1))

    run = each(place, count - 1, shift, state.ranks.run)
    ranks = state.ranks._replace(
        run=run, running=put(state.ranks.running, rank, count - 1)
    )
    return state._replace(ranks=ranks)


def _retract(scene: Scene, state: RadixState, rank: I32) -> RadixState:
    """Send back the least advanced request: fewest tokens, longest prompt, last."""
    first = rank * scene.shape.slots

    def better(i, best):
        inside = view(state)
        run, live = inside.ranks.run, inside.live
        row, chosen = at(run, first + i), at(run, first + best)
        made, least = at(live.generated, row), at(live.generated, chosen)
        longer = at(scene.load.isl, row) >= at(scene.load.isl, chosen)
        return jnp.where((made < least) | ((made == least) & longer), i, best)

    count = at(state.ranks.running, rank)
    place = each(1, count, better, jnp.int32(0)).astype(jnp.int32)
    seen(place, state.ranks.run, state.live.generated)
    row = at(state.ranks.run, first + place)
    state = _remove_running(scene, state, rank, place)
    state = log_leave(scene.shape, state, rank, row, jnp.bool_(True))
    state = release(scene, state, rank, row)
    state = enqueue(scene, state, rank, row)
    want = scene.engine.limits.retract_tokens * (count - 1)
    state, _ = make_room(scene, state, rank, ceil_div(want, scene.engine.page))
    totals = state.totals
    status = state.status
    if not scene.shape.nodes:
        status = jnp.where(scene.engine.caching, NEEDS_TREE, status).astype(jnp.int32)
    return state._replace(
        status=status, totals=totals._replace(retractions=totals.retractions + 1)
    )


def enqueue(scene: Scene, state: RadixState, rank: I32, row: I32) -> RadixState:
    """To the back of the queue, or of what the next pass rejects."""
    ranks, live = state.ranks, state.live
    rejected = at(scene.load.rejected, row)
    tail = jnp.where(rejected, at(ranks.reject_tail, rank), at(ranks.tail, rank))
    live = live._replace(next=put(put_where(tail >= 0, live.next, tail, row), row, -1))
    first = tail < 0
    ranks = ranks._replace(
        head=put_where(first & ~rejected, ranks.head, rank, row),
        tail=put_where(~rejected, ranks.tail, rank, row),
        reject_head=put_where(first & rejected, ranks.reject_head, rank, row),
        reject_tail=put_where(rejected, ranks.reject_tail, rank, row),
    )
    return state._replace(live=live, ranks=ranks)


class _Run(NamedTuple):
    """A run of decode passes under way."""

    passes: I32
    now_ms: F64
    first_ms: F64
    second_ms: F64
    context: I32
    ratio: F64
    hold: I32
    go: Bool[Array, ""]
    priced: Bool[Array, ""]


def _lowered(scene: Scene, ratio: F64) -> F64:
    limits = scene.engine.limits
    return jnp.maximum(ratio - limits.ratio_decay, limits.ratio_floor)


def _run_length(
    scene: Scene, state: RadixState, rank: I32, batch: _Batch, horizon_ms: F64
) -> _Run:
    """How many passes follow one another, and when they end."""
    page, engine = scene.engine.page, scene.engine
    n = at(state.ranks.running, rank)
    head = at(state.ranks.head, rank)
    waiting = (head >= 0) & (n < engine.slots)
    row = jnp.maximum(head, 0)

    def demand(state):
        def fresh(state):
            return matched_pages(scene, state, rank, row)[1]

        match = pick(
            at(state.live.admitted, row) > 0, lambda _: jnp.int32(0), fresh, state
        )
        chunk = engine.limits.chunked_prefill_tokens
        _, _, cost, reserve, possible = head_demand(scene, state, row, match, chunk)
        return match, cost + reserve, possible

    zero = jnp.int32(0)
    match, tokens, possible = pick(
        waiting, demand, lambda _: (zero, zero, jnp.bool_(False)), state
    )
    looked_up(state, match)
    # Evictions could shorten the match of the request that waits, and fewer are needed
    # where a page that was there already goes back after every pass.
    free = at(state.ranks.free, rank)
    pages = available(state, rank)
    spare = jnp.where((waiting & (match > 0)) | (batch.met > 0), free, pages)
    # So many passes need whole pages for everyone and no more.
    most = jnp.minimum(batch.left, jnp.maximum(spare // n * page, 1))
    # A rejection is known at the end of the first pass, and may let others arrive.
    most = jnp.where(at(state.ranks.rejecting, rank) >= 0, 1, most)
    if state.handover is not None:
        # A slot that a retraction freed goes to a request whose KV is there.
        ready = state.handover.built[rank, 0] >= 0
        most = jnp.where(ready & (n < engine.slots), 1, most)
    first = rank * scene.shape.slots

    def fits(passes, ratio):
        """Whether the head would be admitted after so many passes."""

        def taken(i, total):
            inside = view(state)
            owned = at(inside.live.owned, at(inside.ranks.run, first + i))
            return total + ceil_div(owned + passes, page) - ceil_div(owned, page)

        used = each(0, n, taken, zero)
        room = ((pages - used) * page).astype(jnp.float64)
        room = room - reserved_tokens(scene, view(state), rank, ratio, passes)
        return tokens.astype(jnp.float64) < room

    def one(run):
        price = scene.steps.decode_ns(n, run.context)
        in_ms = (price.astype(jnp.float64) / engine.giga) * 1000.0
        # The maximum keeps the product from fusing with the sum to one rounding.
        now = run.now_ms + jnp.maximum(in_ms, 0.0)
        passes = run.passes + 1
        go = (passes < most) & (now < horizon_ms)
        free_to_prefill = go & (run.hold == 0) & waiting & possible
        ready = lax.cond(
            free_to_prefill,
            lambda: fits(passes, run.ratio),
            lambda: jnp.bool_(False),
        )
        go = go & ~ready
        return _Run(
            passes=passes,
            now_ms=now,
            first_ms=jnp.where(passes == 1, now, run.first_ms),
            second_ms=jnp.where(passes == 2, now, run.second_ms),
            context=run.context + n,
            ratio=jnp.where(go, _lowered(scene, run.ratio), run.ratio),
            hold=jnp.where(go, jnp.maximum(run.hold - 1, 0), run.hold),
            go=go & (price >= 0),
            priced=run.priced & (price >= 0),
        )

    start = _Run(
        zero, state.now, state.now, state.now, batch.context,
        at(state.ranks.ratio, rank), at(state.ranks.hold, rank), jnp.bool_(True),
        jnp.bool_(True),
    )  # fmt: skip
    run = repeat(lambda run: run.go, one, start)
    seen(run.passes, state.ranks.run, state.live.owned, state.live.generated)
    return run


def plan_decode(
    scene: Scene, state: RadixState, rank: I32, horizon_ms: F64
) -> tuple[RadixState, I32]:
    """Make a decode pass possible; how many requests take part in it."""
    limits = scene.engine.limits

    def short(state):
        needed = _batch(scene, state, rank).needed
        return (available(state, rank) < needed) & (at(state.ranks.running, rank) > 1)

    before = state.totals.retractions
    state = repeat(short, lambda s: _retract(scene, s, rank), state)
    retracted = state.totals.retractions > before
    batch = _batch(scene, state, rank)
    n = at(state.ranks.running, rank)
    made = (batch.generated + limits.retract_tokens * n).astype(jnp.float64)
    share = jnp.minimum(1.0, made / (batch.output + 1).astype(jnp.float64))
    old = at(state.ranks.ratio, rank)
    ratio = jnp.where(retracted, share, _lowered(scene, old))
    ranks = state.ranks._replace(ratio=put(state.ranks.ratio, rank, ratio))
    this = state.this._replace(
        changed=state.this.changed | (ratio != old),
        effect=state.this.effect | retracted,
    )
    state = state._replace(ranks=ranks, this=this)

    def go(state):
        run = _run_length(scene, state, rank, batch, horizon_ms)
        ranks = state.ranks._replace(
            ratio=put(state.ranks.ratio, rank, run.ratio),
            hold=put(state.ranks.hold, rank, run.hold),
            decode_query=state.ranks.decode_query.at[rank].set(
                jnp.stack([n, batch.context])
            ),
            decode_passes=put(
                state.ranks.decode_passes, rank, at(state.ranks.decode_passes, rank) + 1
            ),
        )
        this = state.this._replace(
            worked=jnp.bool_(True),
            effect=jnp.bool_(True),
            passes=run.passes,
            first_ms=run.first_ms,
            second_ms=run.second_ms,
            end_ms=jnp.maximum(state.this.end_ms, run.now_ms),
        )
        status = jnp.where(run.priced, state.status, UNPRICED).astype(jnp.int32)
        ranks = ranks._replace(own_end_ms=put(ranks.own_end_ms, rank, run.now_ms))
        return state._replace(ranks=ranks, this=this, status=status)

    possible = (n > 0) & (available(state, rank) >= batch.needed)
    state = when(possible, go, state)
    return state, jnp.where(possible, n, 0)
