"""The life of a hand-over: submitted, held, sent, activated, released."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Bool, Int

from .._arrays import Array
from ._radix_arrivals import pop, push, tokenize
from ._radix_branch import each, repeat, when
from ._radix_decode import enqueue
from ._radix_pages import Scene, release, store
from ._radix_reserve import (
    ACTIVATE,
    ASK,
    RELEASE,
    SUBMIT,
    TRY,
    act,
    append,
    drop,
    handover_of,
    reserve,
)
from ._radix_state import RadixShape, RadixState, at, put


I32 = Int[Array, ""]


def worker_of(shape: RadixShape, rank: Int[Array, "*any"]) -> Int[Array, "*any"]:
    """The worker of a rank, prefill workers first."""
    if not shape.prefill_workers:
        return rank // shape.ranks
    decode = shape.prefill_workers + (rank - shape.source_ranks) // shape.ranks
    return jnp.where(rank < shape.source_ranks, rank // shape.prefill_ranks, decode)


def _busy(scene: Scene, state: RadixState, rank: I32) -> Bool[Array, ""]:
    return ~jnp.isinf(at(state.end_ms, worker_of(scene.shape, rank)))


def send(scene: Scene, state: RadixState, source_row: I32) -> RadixState:
    """A prompt is complete: its KV goes to the reserved pages."""
    transfer, hand = scene.transfer, handover_of(state)
    assert transfer is not None
    row = source_row - scene.shape.reqs // 2
    missing = at(hand.fresh, row) * scene.engine.page
    tokens = jnp.where(transfer.full_prompt, at(scene.load.isl, row), missing)
    moved = tokens.astype(jnp.float64) * transfer.bytes_per_token
    delay_ms = moved / transfer.bytes_per_s * 1000.0
    delay_ms = jnp.where(transfer.bytes_per_token > 0, delay_ms, transfer.latency_ms)
    # The maximum keeps the product from fusing with the sum to one rounding.
    done_ms = state.now + jnp.maximum(delay_ms, 0.0)

    def starts(state):
        hand = handover_of(state)
        order = at(hand.order, row)
        transfers = push(hand.transfers, done_ms, row, order)
        return state._replace(handover=hand._replace(transfers=transfers))

    state = when(delay_ms > 0, starts, state)
    return when(delay_ms <= 0, lambda s: act(s, ACTIVATE, row), state)


def finish_transfers(state: RadixState) -> RadixState:
    """Transfers that are done by now; at one instant by the order of reservation."""

    def due(state):
        return handover_of(state).transfers.soonest_ms <= state.now

    def one(state):
        hand = handover_of(state)
        transfers, row = pop(hand.transfers)
        hand = hand._replace(transfers=transfers)
        return act(state._replace(handover=hand), ACTIVATE, row)

    return repeat(due, one, state)


def pass_ended(scene: Scene, state: RadixState, worker: I32) -> RadixState:
    """What waited for the end of a worker's pass is done next."""
    shape = scene.shape
    source = worker < shape.prefill_workers
    first = shape.source_ranks + (worker - shape.prefill_workers) * shape.ranks
    last = jnp.where(source, first, first + shape.ranks)
    state = each(first, last, lambda rank, s: act(s, TRY, rank), state)

    def waits(state):
        return handover_of(state).later[worker, 0] >= 0

    def one(state):
        hand = handover_of(state)
        row = hand.later[worker, 0]
        hand = hand._replace(later=drop(hand.later, state.live.next, worker))
        kind = jnp.where(source, RELEASE, ACTIVATE)
        which = jnp.where(source, row - shape.reqs // 2, row)
        return act(state._replace(handover=hand), kind, which)

    return repeat(waits, one, state)


def _wait_for(scene: Scene, state: RadixState, rank: I32, row: I32) -> RadixState:
    hand, worker = handover_of(state), worker_of(scene.shape, rank)
    later, after = append(hand.later, state.live.next, worker, row)
    live = state.live._replace(next=after)
    return state._replace(live=live, handover=hand._replace(later=later))


def _submit(scene: Scene, state: RadixState, row: I32) -> RadixState:
    """Round robin over the ranks of the prefill pool."""
    shape, hand = scene.shape, handover_of(state)
    rank = hand.submitted % shape.source_ranks
    source_row = row + shape.reqs // 2
    live = state.live._replace(rank=put(state.live.rank, source_row, rank))
    hand = hand._replace(submitted=hand.submitted + 1)
    state = state._replace(live=live, handover=hand)
    if shape.servers:
        servers = rank // shape.prefill_ranks * shape.servers
        return tokenize(scene, state, source_row, state.now, servers)
    return enqueue(scene, state, rank, source_row)


def _activate(scene: Scene, state: RadixState, row: I32) -> RadixState:
    hand, rank = handover_of(state), at(state.live.rank, row)
    built, after = append(hand.built, state.live.next, rank, row)
    activated_ms = put(hand.activated_ms, row, state.now)
    hand = hand._replace(built=built, activated_ms=activated_ms)
    state = state._replace(live=state.live._replace(next=after), handover=hand)
    return act(state, RELEASE, row)


def _release(scene: Scene, state: RadixState, row: I32) -> RadixState:
    source_row = row + scene.shape.reqs // 2
    rank = at(state.live.rank, source_row)
    scene = scene.of_rank(rank)
    # The release counts as a use of the cached pages.
    state = store(scene, state, rank, source_row)
    state = release(scene, state, rank, source_row)
    hand = handover_of(state)
    released_ms = put(hand.released_ms, row, state.now)
    return state._replace(handover=hand._replace(released_ms=released_ms))


def run_actions(scene: Scene, state: RadixState) -> RadixState:
    """Do what is to be done, in order; work on a stepping worker waits for its end."""
    half = scene.shape.reqs // 2

    def going(state):
        hand = handover_of(state)
        return (hand.count > 0) & ~hand.full

    def one(state):
        hand = handover_of(state)
        room = hand.actions.values.shape[0] - 1
        code = at(hand.actions, hand.first)
        hand = hand._replace(first=(hand.first + 1) % room, count=hand.count - 1)
        state = state._replace(handover=hand)
        kind, which = code % 8, code // 8
        row = jnp.where(kind == TRY, 0, which)
        own = at(state.live.rank, row)
        target = jnp.where(kind == TRY, which, own)
        source = at(state.live.rank, row + half)
        releases = kind == RELEASE
        touched = jnp.where(releases, jnp.maximum(source, 0), jnp.maximum(target, 0))
        busy = _busy(scene, state, touched)

        def asks(state):
            hand = handover_of(state)
            asked, after = append(hand.asked, state.live.next, target, row)
            live = state.live._replace(next=after)
            return state._replace(live=live, handover=hand._replace(asked=asked))

        waiting_row = jnp.where(releases, row + half, row)
        late = busy & ((kind == ACTIVATE) | releases)
        state = when(kind == ASK, asks, state)
        state = when(kind == SUBMIT, lambda s: _submit(scene, s, row), state)
        state = when(late, lambda s: _wait_for(scene, s, touched, waiting_row), state)
        active = (kind == ACTIVATE) & ~busy
        state = when(active, lambda s: _activate(scene, s, row), state)
        state = when(releases & ~busy, lambda s: _release(scene, s, row), state)
        tries = ~busy & ((kind == ASK) | (kind == TRY) | (kind == ACTIVATE))
        tries &= handover_of(state).asked[target, 0] >= 0
        return when(tries, lambda s: reserve(scene, s, target), state)

    return repeat(going, one, state)
