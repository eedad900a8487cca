"""Arrivals: a static order, and a heap of those that follow from completions."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jaxtyping import Bool, Float, Int

from .._arrays import Array
from ._radix_branch import each, repeat, when
from ._radix_decode import enqueue
from ._radix_pages import Scene
from ._radix_reserve import ask
from ._radix_state import Heap, RadixState, at, put, put_where


I32 = Int[Array, ""]
F64 = Float[Array, ""]


def _earlier(heap: Heap, one: I32, other: I32) -> Bool[Array, ""]:
    first, second = at(heap.instant, one), at(heap.instant, other)
    return (first < second) | (
        (first == second) & (at(heap.order, one) < at(heap.order, other))
    )


def _swap(heap: Heap, one: I32, other: I32) -> Heap:
    def swapped(array):
        first, second = at(array, one), at(array, other)
        return put(put(array, one, second), other, first)

    return heap._replace(
        instant=swapped(heap.instant), order=swapped(heap.order), row=swapped(heap.row)
    )


def push(heap: Heap, at_ms: F64, row: I32, order: I32 | None = None) -> Heap:
    """Add one arrival; at equal instants by `order`, or as they were added."""
    place = heap.size
    order = heap.inserted if order is None else order
    heap = heap._replace(
        instant=put(heap.instant, place, lax.bitcast_convert_type(at_ms, jnp.int64)),
        order=put(heap.order, place, order),
        row=put(heap.row, place, row),
        size=place + 1,
        inserted=heap.inserted + 1,
        soonest_ms=jnp.minimum(heap.soonest_ms, at_ms),
    )

    def rises(carry):
        heap, place = carry
        return (place > 0) & _earlier(heap, place, jnp.maximum(place - 1, 0) // 2)

    def rise(carry):
        heap, place = carry
        above = (place - 1) // 2
        return _swap(heap, place, above), above

    return repeat(rises, rise, (heap, place))[0]


def pop(heap: Heap) -> tuple[Heap, I32]:
    """Remove the earliest arrival; the answer is its row."""
    row = at(heap.row, 0)
    last = heap.size - 1
    heap = _swap(heap, jnp.int32(0), last)._replace(size=last)

    def least(heap, place):
        end = jnp.int32(heap.row.values.shape[0] - 1)
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

    heap, _ = repeat(sinks, sink, (heap, jnp.int32(0)))
    soonest_ms = lax.bitcast_convert_type(at(heap.instant, 0), jnp.float64)
    soonest_ms = jnp.where(heap.size > 0, soonest_ms, jnp.inf)
    return heap._replace(soonest_ms=soonest_ms), row


def next_arrival_ms(scene: Scene, state: RadixState) -> tuple[F64, Bool[Array, ""]]:
    """The earliest arrival to come, inf for none, and whether the static order has it."""
    load = scene.load
    listed = (load.in_flight == 0) & (state.arrived < load.sessions)
    place = jnp.minimum(state.arrived, scene.shape.reqs - 1)
    static = jnp.where(listed, at(load.order_ms, place), jnp.inf)
    dynamic = state.heap.soonest_ms
    return jnp.minimum(static, dynamic), static <= dynamic


def first_arrivals(scene: Scene, state: RadixState) -> RadixState:
    """A closed loop starts as many sessions as it holds, at time 0."""
    load = scene.load
    count = jnp.minimum(load.in_flight, load.sessions)

    def one(i, heap):
        return push(heap, jnp.float64(0.0), 2 * at(load.order, i))

    heap = each(jnp.int32(0), count, one, state.heap)
    return state._replace(heap=heap, arrived=count)


def _submit(scene: Scene, state: RadixState, row: I32) -> RadixState:
    """Round robin over workers, then over the ranks of a worker.

    With a prefill pool: the destination of a new request, or a tokenized one.
    """
    shape = scene.shape
    if shape.prefill_workers:
        return when(
            row >= shape.reqs // 2,
            lambda s: enqueue(scene, s, at(s.live.rank, row), row),
            when(row < shape.reqs // 2, lambda s: _destine(scene, s, row), state),
        )
    worker = state.place
    turn = at(state.turn, worker)
    rank = worker * shape.ranks + turn
    state = state._replace(
        place=(worker + 1) % shape.workers,
        turn=put(state.turn, worker, (turn + 1) % shape.ranks),
        live=state.live._replace(rank=put(state.live.rank, row, rank)),
    )

    return enqueue(scene, state, rank, row)


def _destine(scene: Scene, state: RadixState, row: I32) -> RadixState:
    """Round robin over the decode ranks; a prompt that is too long ends at once."""

    def ends(state):
        live = state.live
        live = live._replace(terminal_ms=put(live.terminal_ms, row, state.now))
        return follow_up(scene, state._replace(live=live), row)

    rejected = at(scene.load.rejected, row)
    state = when(rejected, ends, state)
    return when(~rejected, lambda s: ask(scene, s, row), state)


def tokenize(
    scene: Scene, state: RadixState, row: I32, at_ms: F64, first: I32 | int = 0
) -> RadixState:
    """The first free server of the stage takes the request; its servers come `first`."""
    engine = scene.engine
    own = jnp.arange(state.server_ms.size) - first
    free_ms = jnp.where((own >= 0) & (own < engine.servers), state.server_ms, jnp.inf)
    server = jnp.argmin(free_ms)
    tokens = at(scene.load.isl, row).astype(jnp.float64)
    per_token = jnp.maximum(tokens * engine.service_us_per_token / 1000, 0.0)
    done = jnp.maximum(at_ms, at(free_ms, server)) + (
        engine.service_base_ms + per_token
    )
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

        place = jnp.minimum(state.arrived, scene.shape.reqs - 1)
        row = 2 * at(scene.load.order, place)
        state = state._replace(arrived=state.arrived + jnp.where(static, 1, 0))
        heap, coded = when(~static, lambda carry: pop(carry[0]), (state.heap, row))
        state = state._replace(heap=heap)
        row, raw = coded // 2, coded % 2 == 0
        live = state.live
        live = live._replace(arrival_ms=put_where(raw, live.arrival_ms, row, at_ms))
        state = state._replace(live=live)
        if not scene.shape.servers or scene.shape.prefill_workers:
            return _submit(scene, state, row)
        waits = raw & (scene.engine.servers > 0)
        state = when(waits, lambda s: tokenize(scene, s, row, at_ms), state)
        return when(~waits, lambda s: _submit(scene, s, row), state)

    return repeat(due, one, state)


def follow_up(scene: Scene, state: RadixState, row: I32) -> RadixState:
    """What the end of a request lets arrive: its session's next turn, or a session."""
    load = scene.load
    turn = at(load.follow, row)

    opens = (turn < 0) & (load.in_flight > 0) & (state.arrived < load.sessions)
    place = jnp.minimum(state.arrived, scene.shape.reqs - 1)
    following = jnp.where(opens, at(load.order, place), turn)
    delay_ms = at(load.delay_ms, jnp.maximum(turn, 0))
    ready_ms = state.now + jnp.where(opens, 0.0, delay_ms)
    state = state._replace(arrived=state.arrived + jnp.where(opens, 1, 0))
    return when(
        following >= 0,
        lambda s: s._replace(heap=push(s.heap, ready_ms, 2 * following)),
        state,
    )
