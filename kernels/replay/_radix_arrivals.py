"""Arrivals: a static order, and a heap of those that follow from completions."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jaxtyping import Bool, Float, Int

from .._arrays import Array
from ._radix_decode import enqueue
from ._radix_pages import Scene
from ._radix_state import Heap, RadixState, at, put, put_where


I32 = Int[Array, ""]
F64 = Float[Array, ""]


def _earlier(heap: Heap, one: I32, other: I32) -> Bool[Array, ""]:
    first, second = at(heap.at_ms, one), at(heap.at_ms, other)
    return (first < second) | (
        (first == second) & (at(heap.order, one) < at(heap.order, other))
    )


def _swap(heap: Heap, one: I32, other: I32) -> Heap:
    def swapped(array):
        first, second = at(array, one), at(array, other)
        return put(put(array, one, second), other, first)

    return heap._replace(
        at_ms=swapped(heap.at_ms), order=swapped(heap.order), row=swapped(heap.row)
    )


def push(heap: Heap, at_ms: F64, row: I32) -> Heap:
    """Add one arrival."""
    place = heap.size
    heap = heap._replace(
        at_ms=put(heap.at_ms, place, at_ms),
        order=put(heap.order, place, heap.inserted),
        row=put(heap.row, place, row),
        size=place + 1,
        inserted=heap.inserted + 1,
    )

    def rises(carry):
        heap, place = carry
        return (place > 0) & _earlier(heap, place, jnp.maximum(place - 1, 0) // 2)

    def rise(carry):
        heap, place = carry
        above = (place - 1) // 2
        return _swap(heap, place, above), above

    return lax.while_loop(rises, rise, (heap, place))[0]


def pop(heap: Heap) -> tuple[Heap, I32]:
    """Remove the earliest arrival; the answer is its row."""
    row = heap.row[0]
    last = heap.size - 1
    heap = _swap(heap, jnp.int32(0), last)._replace(size=last)

    def least(heap, place):
        end = jnp.int32(heap.at_ms.shape[0] - 1)
        left, right = 2 * place + 1, 2 * place + 2
        has_left, has_right = left < heap.size, right < heap.size
        left, right = jnp.minimum(left, end), jnp.minimum(right, end)
        best = jnp.where(has_left & _earlier(heap, left, place), left, place)
        return jnp.where(has_right & _earlier(heap, right, best), right, best)

    def sinks(carry):
        heap, place = carry
        return least(heap, place) != place

    def sink(carry):
        heap, place = carry
        below = least(heap, place)
        return _swap(heap, place, below), below

    return lax.while_loop(sinks, sink, (heap, jnp.int32(0)))[0], row


def next_arrival_ms(scene: Scene, state: RadixState) -> tuple[F64, Bool[Array, ""]]:
    """The earliest arrival to come, inf for none, and whether the static order has it."""
    load = scene.load
    listed = (load.in_flight == 0) & (state.arrived < load.sessions)
    place = jnp.minimum(state.arrived, scene.shape.reqs - 1)
    static = jnp.where(listed, at(load.order_ms, place), jnp.inf)
    dynamic = jnp.where(state.heap.size > 0, state.heap.at_ms[0], jnp.inf)
    return jnp.minimum(static, dynamic), static <= dynamic


def first_arrivals(scene: Scene, state: RadixState) -> RadixState:
    """A closed loop starts as many sessions as it holds, at time 0."""
    load = scene.load
    count = jnp.minimum(load.in_flight, load.sessions)

    def one(i, heap):
        return push(heap, jnp.float64(0.0), 2 * at(load.order, i))

    heap = lax.fori_loop(jnp.int32(0), count, one, state.heap)
    return state._replace(heap=heap, arrived=count)


def _submit(scene: Scene, state: RadixState, row: I32) -> RadixState:
    """Round robin over workers, then over the ranks of a worker."""
    shape = scene.shape
    worker = state.place
    turn = at(state.turn, worker)
    rank = worker * shape.ranks + turn
    state = state._replace(
        place=(worker + 1) % shape.workers,
        turn=put(state.turn, worker, (turn + 1) % shape.ranks),
        live=state.live._replace(rank=put(state.live.rank, row, rank)),
    )

    def reject(state):
        ranks, live = state.ranks, state.live
        tail = at(ranks.reject_tail, rank)
        live = live._replace(next=put(put_where(tail >= 0, live.next, tail, row), row, -1))
        ranks = ranks._replace(
            reject_head=put_where(tail < 0, ranks.reject_head, rank, row),
            reject_tail=put(ranks.reject_tail, rank, row),
        )
        return state._replace(live=live, ranks=ranks)

    return lax.cond(
        at(scene.load.rejected, row), reject, lambda s: enqueue(s, rank, row), state
    )


def _tokenize(scene: Scene, state: RadixState, row: I32, at_ms: F64) -> RadixState:
    """The first free server of the stage takes the request."""
    engine = scene.engine
    numbers = jnp.arange(scene.shape.servers)
    free_ms = jnp.where(numbers < engine.servers, state.server_ms, jnp.inf)
    server = jnp.argmin(free_ms)
    tokens = at(scene.load.isl, row).astype(jnp.float64)
    per_token = jnp.maximum(tokens * engine.service_us_per_token / 1000, 0.0)
    done = jnp.maximum(at_ms, at(free_ms, server)) + (engine.service_base_ms + per_token)
    return state._replace(
        server_ms=put(state.server_ms, server, done),
        heap=push(state.heap, done, 2 * row + 1),
    )


def release_arrivals(scene: Scene, state: RadixState) -> RadixState:
    """Submit everything that has arrived by now."""

    def due(state):
        return next_arrival_ms(scene, state)[0] <= state.now

    def one(state):
        at_ms, static = next_arrival_ms(scene, state)

        def listed(state):
            row = 2 * at(scene.load.order, state.arrived)
            return state._replace(arrived=state.arrived + 1), row

        def following(state):
            heap, row = pop(state.heap)
            return state._replace(heap=heap), row

        state, coded = lax.cond(static, listed, following, state)
        row, raw = coded // 2, coded % 2 == 0
        live = state.live
        live = live._replace(arrival_ms=put_where(raw, live.arrival_ms, row, at_ms))
        state = state._replace(live=live)
        if not scene.shape.servers:
            return _submit(scene, state, row)
        return lax.cond(
            raw & (scene.engine.servers > 0),
            lambda s: _tokenize(scene, s, row, at_ms),
            lambda s: _submit(scene, s, row),
            state,
        )

    return lax.while_loop(due, one, state)


def follow_up(scene: Scene, state: RadixState, row: I32) -> RadixState:
    """What the end of a request lets arrive: its session's next turn, or a session."""
    load = scene.load
    turn = at(load.follow, row)

    def next_turn(state):
        ready = state.now + at(load.delay_ms, jnp.maximum(turn, 0))
        return state._replace(heap=push(state.heap, ready, 2 * turn))

    def next_session(state):
        row = at(load.order, state.arrived)
        return state._replace(
            heap=push(state.heap, state.now, 2 * row), arrived=state.arrived + 1
        )

    opens = (load.in_flight > 0) & (state.arrived < load.sessions)
    return lax.cond(
        turn >= 0,
        next_turn,
        lambda s: lax.cond(opens, next_session, lambda s: s, s),
        state,
    )
