"""Destinations in a decode pool: pages reserved before prefill, requests promoted after."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Int

from .._arrays import Array
from ._block_cells import Cells
from ._radix_branch import repeat, when
from ._radix_logs import log_admission
from ._radix_pages import (
    Scene,
    ceil_div,
    looked_up,
    make_room,
    matched_pages,
    pin,
    release,
    store,
    take_pages,
)
from ._radix_state import Handover, RadixState, at, put, put_where


I32 = Int[Array, ""]
# What is to be done with a request, or a rank for TRY: 8 * which + one of these.
ASK, TRY, SUBMIT, ACTIVATE, RELEASE = range(5)


def handover_of(state: RadixState) -> Handover:
    """The hand-over of a replay with two pools."""
    assert state.handover is not None
    return state.handover


def act(state: RadixState, kind: int | I32, which: I32) -> RadixState:
    """Do this after what is to be done already."""
    hand = handover_of(state)
    room = hand.actions.values.shape[0] - 1
    place = (hand.first + hand.count) % room
    hand = hand._replace(
        actions=put(hand.actions, place, 8 * which + kind),
        count=hand.count + 1,
        full=hand.full | (hand.count >= room),
    )
    return state._replace(handover=hand)


def append(
    lists: Int[Array, "lists two"], after: Cells, which: I32, row: I32
) -> tuple[Int[Array, "lists two"], Cells]:
    """Put a request at the end of one of the lists, given as heads and tails."""
    head, tail = lists[which, 0], lists[which, 1]
    after = put(put_where(tail >= 0, after, tail, row), row, -1)
    ends = jnp.stack([jnp.where(tail < 0, row, head), row]).astype(jnp.int32)
    return lists.at[which].set(ends), after


def drop(
    lists: Int[Array, "lists two"], after: Cells, which: I32
) -> Int[Array, "lists two"]:
    """Take the first request out of a list."""
    head = at(after, lists[which, 0])
    tail = jnp.where(head < 0, -1, lists[which, 1])
    return lists.at[which].set(jnp.stack([head, tail]).astype(jnp.int32))


def ask(scene: Scene, state: RadixState, row: I32) -> RadixState:
    """Choose a destination, round robin over the ranks of the decode pool."""
    shape, hand = scene.shape, handover_of(state)
    rank = shape.source_ranks + hand.destined % (shape.workers * shape.ranks)
    live = state.live._replace(rank=put(state.live.rank, row, rank))
    hand = hand._replace(destined=hand.destined + 1)
    return act(state._replace(live=live, handover=hand), ASK, row)


def reserve(scene: Scene, state: RadixState, rank: I32) -> RadixState:
    """Pages of the whole prompt for the first that asks, if there is room.

    Cached pages are shared. A request that got its pages goes to a prefill worker.
    """
    scene = scene.of_rank(rank)
    row = handover_of(state).asked[rank, 0]
    node, known = matched_pages(scene, state, rank, row, whole=True)
    looked_up(state, known)
    state = pin(scene, state, rank, row, node, known)
    isl = at(scene.load.isl, row)
    fresh = ceil_div(isl, scene.engine.page) - known
    state, ok = make_room(scene, state, rank, fresh)

    def grant(state):
        state = take_pages(scene, state, rank, fresh)
        live, hand = state.live, handover_of(state)
        hand = hand._replace(
            asked=drop(hand.asked, live.next, rank),
            order=put(hand.order, row, hand.granted),
            granted=hand.granted + 1,
            fresh=put(hand.fresh, row, fresh),
            reserved_ms=put(hand.reserved_ms, row, state.now),
        )
        live = live._replace(owned=put(live.owned, row, isl))
        return act(state._replace(live=live, handover=hand), SUBMIT, row)

    state = when(ok, grant, state)
    return when(~ok, lambda s: release(scene, s, rank, row), state)


def promote(scene: Scene, state: RadixState, rank: I32) -> RadixState:
    """Requests whose KV is there start to run, as far as there are slots."""
    slots = scene.shape.slots

    def going(state):
        first = handover_of(state).built[rank, 0]
        return (first >= 0) & (at(state.ranks.running, rank) < scene.engine.slots)

    def one(state):
        hand, live, ranks = handover_of(state), state.live, state.ranks
        row, running = hand.built[rank, 0], at(ranks.running, rank)
        hand = hand._replace(built=drop(hand.built, live.next, rank))
        live = live._replace(
            admitted=put(live.admitted, row, 1),
            admissions=put(live.admissions, row, 1),
            admit_ms=put(live.admit_ms, row, state.now),
            joined=put(live.joined, row, at(ranks.decode_passes, rank)),
        )
        ranks = ranks._replace(
            run=put(ranks.run, rank * slots + running, row),
            running=put(ranks.running, rank, running + 1),
        )
        state = state._replace(live=live, ranks=ranks, handover=hand)
        state = store(scene, state, rank, row)
        none = jnp.int32(0)
        return log_admission(scene.shape, state, row, none, jnp.bool_(True))

    return repeat(going, one, state)
