"""Requests that arrive, pass the tokenizer and reach a scheduler; sessions that go on."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from .._arrays import Array
from ._block_handoff import SUBMIT, put_action
from ._block_queue import append, pop, push, soonest_ms
from ._block_state import COMPLETED, REJECTED, BlockLane, BlockShape, World
from ._block_stretch import cut_stretch
from ._radix_branch import repeat, when


Count = Int[Array, ""]


def _next_first_turn(
    shape: BlockShape, lane: BlockLane, world: World
) -> tuple[Count, Float[Array, ""]]:
    """(request, instant) of the next arrival known from the start; inf if none."""
    traffic, released = lane.traffic, world.loop.released
    at = jnp.minimum(released, shape.reqs - 1)
    some = (traffic.in_flight == 0) & (released < traffic.sessions)
    return traffic.first_turns[at], jnp.where(some, traffic.arrival_ms[at], jnp.inf)


def next_arrival_ms(
    shape: BlockShape, lane: BlockLane, world: World
) -> Float[Array, ""]:
    """The next instant at which the traffic does something."""
    _, known = _next_first_turn(shape, lane, world)
    soonest = jnp.minimum(known, soonest_ms(world.arrivals))
    if shape.servers:
        soonest = jnp.minimum(soonest, soonest_ms(world.tokenized))
    return soonest


def start_session(shape: BlockShape, lane: BlockLane, world: World) -> World:
    """Closed loop: the next session arrives now."""
    traffic, loop = lane.traffic, world.loop
    request = traffic.first_turns[jnp.minimum(loop.released, shape.reqs - 1)]

    def arrive(world: World) -> World:
        heap = push(world.arrivals, loop.now_ms, traffic.session[request], request)
        return world._replace(
            arrivals=heap, loop=loop._replace(released=loop.released + 1)
        )

    return when(loop.released < traffic.sessions, arrive, world)


def open_loop(shape: BlockShape, lane: BlockLane, world: World) -> World:
    """The sessions that start a closed loop."""

    def one(carry: tuple[Count, World]) -> tuple[Count, World]:
        started, world = carry
        return started + 1, start_session(shape, lane, world)

    most = jnp.minimum(lane.traffic.in_flight, lane.traffic.sessions)
    return repeat(lambda carry: carry[0] < most, one, (jnp.int32(0), world))[1]


def end_requests(
    shape: BlockShape, lane: BlockLane, world: World, rank: Count
) -> World:
    """Requests of a rank that end now: their sessions go on, or make room."""
    traffic, now_ms = lane.traffic, world.loop.now_ms

    def one(world: World) -> World:
        job = world.ranks.ended[rank]
        following_job = world.seqs.link[job]
        request = job % shape.reqs if shape.pools > 1 else job
        status = jnp.where(world.seqs.taken[job] < 0, REJECTED, COMPLETED)
        records, loop = world.records, world.loop
        world = world._replace(
            ranks=world.ranks._replace(
                ended=world.ranks.ended.put(rank, following_job)
            ),
            records=records._replace(
                terminal_ms=records.terminal_ms.at[request].set(now_ms),
                status=records.status.at[request].set(status.astype("int32")),
            ),
            loop=loop._replace(in_flight=loop.in_flight - 1),
        )
        following = traffic.following[request]

        def turn(world: World) -> World:
            at_ms = now_ms + traffic.delay_ms[following]
            session = traffic.session[request]
            return world._replace(
                arrivals=push(world.arrivals, at_ms, session, following)
            )

        closed = (following < 0) & (traffic.in_flight > 0)
        world = when(following >= 0, turn, world)
        return when(closed, lambda world: start_session(shape, lane, world), world)

    return repeat(lambda world: world.ranks.ended[rank] >= 0, one, world)


def submit(shape: BlockShape, lane: BlockLane, world: World, request: Count) -> World:
    """To the tokenizer of the next worker, or straight to a scheduler.

    One pool: round robin over workers, and over the ranks of each when a request gets
    there. Two pools: over all ranks, worker by worker.
    """
    limits, loop = lane.limits, world.loop
    if shape.pools == 1:
        worker = seat = loop.placed % limits.workers[0]
    else:
        seat = loop.placed % (limits.workers[0] * limits.ranks[0])
        worker = lane.places.worker_of_rank[seat]
    world = world._replace(loop=loop._replace(placed=loop.placed + 1))
    if not shape.servers:
        return _place(shape, lane, world, request, seat)
    row = jax.lax.dynamic_index_in_dim(world.servers_ms, worker, keepdims=False)
    server = jnp.argmin(row).astype("int32")
    begin_ms = jnp.maximum(world.loop.now_ms, row[server])
    end_ms = begin_ms + lane.traffic.service_ms[request]
    inserted = world.loop.inserted
    return world._replace(
        seats=world.seats.put(request, seat),
        servers_ms=world.servers_ms.at[worker, server].set(end_ms),
        tokenized=push(world.tokenized, end_ms, inserted, request),
        loop=world.loop._replace(inserted=inserted + 1),
    )


def leave_tokenizers(shape: BlockShape, lane: BlockLane, world: World) -> World:
    """Submit what the tokenizers have finished by now."""
    if not shape.servers:
        return world

    def one(world: World) -> World:
        found, heap = pop(world.tokenized)
        loop = world.loop._replace(changed=jnp.int32(1))
        world = world._replace(tokenized=heap, loop=loop)
        return _place(shape, lane, world, found, world.seats[found])

    return repeat(
        lambda world: soonest_ms(world.tokenized) <= world.loop.now_ms, one, world
    )


def _place(
    shape: BlockShape, lane: BlockLane, world: World, request: Count, seat: Count
) -> World:
    """Into the queue of a rank: `seat`, or with one pool the next rank of worker `seat`."""
    limits, workers, ranks, seqs = lane.limits, world.workers, world.ranks, world.seqs
    rank = seat
    if shape.pools == 1:
        turn = workers.next_rank[seat]
        rank = lane.places.first_rank[seat] + turn % limits.ranks[0]
        workers = workers._replace(next_rank=workers.next_rank.put(seat, turn + 1))
    empty = ranks.waiting[rank] < 0
    receptive = empty & (ranks.running[rank] < limits.sequences[0])
    chain = (ranks.waiting, ranks.waiting_end, seqs.link)
    waiting, end, link = append(chain, rank, request)
    records = world.records
    if shape.pools == 1:
        records = records._replace(rank=records.rank.put(request, rank))
    else:
        records = records._replace(source=records.source.put(request, rank))
    world = world._replace(
        ranks=ranks._replace(waiting=waiting, waiting_end=end),
        seqs=seqs._replace(link=link),
        records=records,
        workers=workers,
    )
    if shape.pools > 1:
        return world
    return cut_stretch(lane, shape, world, seat, receptive)


def release_arrivals(shape: BlockShape, lane: BlockLane, world: World) -> World:
    """Everything that has arrived by now, in order of instant and session."""
    traffic = lane.traffic

    def due(world: World) -> Bool[Array, ""]:
        _, known = _next_first_turn(shape, lane, world)
        soonest = jnp.minimum(known, soonest_ms(world.arrivals))
        return soonest <= world.loop.now_ms

    def one(world: World) -> World:
        request, known_ms = _next_first_turn(shape, lane, world)
        heap, loop = world.arrivals, world.loop
        later_ms = soonest_ms(heap)
        earlier = traffic.session[request] < heap.tie[0]
        known = (known_ms < later_ms) | ((known_ms == later_ms) & earlier)

        def pop_heap(state: tuple[World, Count]) -> tuple[World, Count]:
            world, _ = state
            found, heap = pop(world.arrivals)
            return world._replace(arrivals=heap), found

        world, found = when(~known, pop_heap, (world, request))
        world = world._replace(loop=loop._replace(released=loop.released + known))
        at_ms = jnp.minimum(known_ms, later_ms)
        records, loop = world.records, world.loop
        world = world._replace(
            records=records._replace(
                arrival_ms=records.arrival_ms.at[found].set(at_ms)
            ),
            loop=loop._replace(in_flight=loop.in_flight + 1, changed=jnp.int32(1)),
        )
        if shape.pools > 1:
            return put_action(shape, world, SUBMIT, found)
        return submit(shape, lane, world, found)

    return repeat(due, one, world)
