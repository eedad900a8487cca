"""The life of a hand-over from a prefill to a decode worker, as actions in order.

A completed prompt stays held at its source until its destination has the KV. An action
for a worker that is stepping waits until its pass ends.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Bool, Int

from .._arrays import Array
from ._block_parts import Parts, publish, rank_of, to_completion
from ._block_pool import (
    available,
    idle_hits,
    leading_hits,
    pin_hits,
    release_blocks,
    take_blocks,
)
from ._block_queue import append, insert, pop, push, remove, soonest_ms
from ._block_state import (
    ACTIONS_FULL,
    BlockLane,
    BlockShape,
    World,
    blocks_for,
    whole,
)
from ._block_stretch import cut_stretch
from ._radix_branch import repeat, when
from ._timing import rounded


Count = Int[Array, ""]
SUBMIT, RESERVE, ACTIVATE, RELEASE, TRY = range(5)
KINDS = 8


def put_action(shape: BlockShape, world: World, kind: int, what: Count) -> World:
    """Queue an action; `what` is a request, or the rank of a TRY."""
    actions = world.actions
    full = actions.end - actions.start >= shape.actions
    loop = world.loop
    status = jnp.where(full, ACTIONS_FULL, loop.status).astype("int32")
    return world._replace(
        actions=actions._replace(
            ring=actions.ring.put(actions.end % shape.actions, what * KINDS + kind),
            end=actions.end + 1,
        ),
        loop=loop._replace(status=status),
    )


def _defer(shape: BlockShape, world: World, code: Count) -> World:
    actions = world.actions
    full = actions.deferred_end - actions.deferred_start >= shape.actions
    status = jnp.where(full, ACTIONS_FULL, world.loop.status).astype("int32")
    return world._replace(
        actions=actions._replace(
            deferred=actions.deferred.put(actions.deferred_end % shape.actions, code),
            deferred_end=actions.deferred_end + 1,
        ),
        loop=world.loop._replace(status=status),
    )


def _worker_of(lane: BlockLane, world: World, code: Count) -> Count:
    """The worker that an action must find between passes, or -1."""
    kind, what = code % KINDS, code // KINDS
    rank = jnp.where(
        kind == TRY,
        what,
        jnp.where(
            kind == RELEASE, world.records.source[what], world.records.rank[what]
        ),
    )
    bound = (kind == TRY) | (kind == ACTIVATE) | (kind == RELEASE)
    return jnp.where(bound, lane.places.worker_of_rank[jnp.maximum(rank, 0)], -1)


def deliver_transfers(world: World, shape: BlockShape) -> World:
    """Transfers that are complete by now."""

    def one(world: World) -> World:
        request, heap = pop(world.transfers)
        world = world._replace(
            transfers=heap, loop=world.loop._replace(changed=jnp.int32(1))
        )
        return put_action(shape, world, ACTIVATE, request)

    return repeat(
        lambda world: soonest_ms(world.transfers) <= world.loop.now_ms, one, world
    )


def pass_ended(shape: BlockShape, lane: BlockLane, world: World, rank: Count) -> World:
    """Hand-over events of a rank whose pass has ended."""
    pool = lane.places.pool_of_rank[rank]
    now_ms, limits = world.loop.now_ms, lane.limits

    def choose_target(world: World) -> World:
        job = world.ranks.held[rank]
        following = world.seqs.link[job]
        loop, records = world.loop, world.records
        # Round robin over all ranks of the pool, worker by worker.
        turn = loop.destined % (limits.workers[1] * limits.ranks[1])
        target = limits.first_rank[1] + turn
        world = world._replace(
            ranks=world.ranks._replace(held=world.ranks.held.put(rank, following)),
            records=records._replace(
                held_ms=records.held_ms.at[job].set(now_ms),
                rank=records.rank.put(job, target),
            ),
            loop=loop._replace(destined=loop.destined + 1),
        )
        return put_action(shape, world, RESERVE, job)

    world = repeat(lambda world: world.ranks.held[rank] >= 0, choose_target, world)
    return when(pool == 1, lambda world: put_action(shape, world, TRY, rank), world)


def wake_deferred(
    shape: BlockShape, lane: BlockLane, world: World, worker: Count
) -> World:
    """Actions that waited for this worker come next."""

    def one(carry: tuple[Count, World]) -> tuple[Count, World]:
        at, world = carry
        actions = world.actions
        place = at % shape.actions
        code = actions.deferred[place]
        mine = (code >= 0) & (_worker_of(lane, world, jnp.maximum(code, 0)) == worker)

        def move(world: World) -> World:
            actions = world.actions
            world = world._replace(
                actions=actions._replace(deferred=actions.deferred.put(place, -1))
            )
            actions = world.actions
            ring = actions.ring.put(actions.end % shape.actions, code)
            return world._replace(
                actions=actions._replace(ring=ring, end=actions.end + 1)
            )

        return at + 1, when(mine, move, world)

    end = world.actions.deferred_end
    start = (world.actions.deferred_start, world)
    _, world = repeat(lambda carry: carry[0] < end, one, start)

    def gone(world: World) -> Bool[Array, ""]:
        actions = world.actions
        place = actions.deferred_start % shape.actions
        some = actions.deferred_start < actions.deferred_end
        return some & (actions.deferred[place] < 0)

    def forget(world: World) -> World:
        actions = world.actions
        return world._replace(
            actions=actions._replace(deferred_start=actions.deferred_start + 1)
        )

    return repeat(gone, forget, world)


def _ask(shape: BlockShape, lane: BlockLane, world: World, request: Count) -> World:
    """Queue for room at the destination."""
    job = shape.reqs + request
    number = world.records.rank[request]
    ranks, seqs = world.ranks, world.seqs
    empty = ranks.asking[number] < 0
    chain = (ranks.asking, ranks.asking_end, seqs.link)
    asking, end, link = append(chain, number, job)
    order = ranks.asked[number] + 1
    world = world._replace(
        ranks=ranks._replace(
            asking=asking, asking_end=end, asked=ranks.asked.put(number, order)
        ),
        seqs=seqs._replace(link=link, order=seqs.order.put(job, order)),
    )
    worker = lane.places.worker_of_rank[number]
    return cut_stretch(lane, shape, world, worker, empty)


def _try_reserve(
    shape: BlockShape, lane: BlockLane, world: World, number: Count
) -> World:
    """Grant the first who asks, if its prompt fits now."""
    rank = rank_of(lane, number)
    limits = rank.limits
    blocks, seqs, ranks = world.blocks, world.seqs, world.ranks
    job = jnp.maximum(ranks.asking[number], 0)
    request = job % shape.reqs
    isl = lane.traffic.isl[request]
    row = lane.jobs.first_row[job]
    releases = blocks.releases[number]
    hits = idle = jnp.int32(0)
    if shape.blocks and not shape.guaranteed:
        most = jnp.where(limits.caching > 0, whole(isl, limits.block_size), 0)
        hits = leading_hits(shape, lane, blocks, number, row, most)
        idle = idle_hits(shape, lane, blocks, number, row, hits)
    fresh = blocks_for(isl, limits.block_size) - hits
    room = available(blocks, number)
    fits = (ranks.running[number] < limits.sequences) & (room - idle >= fresh)
    if shape.guaranteed:
        demand = to_completion(lane, shape, rank, seqs, job)
        fits = fits & (demand <= room - ranks.promised[number])

    def grant(world: World) -> World:
        blocks, seqs, ranks = world.blocks, world.seqs, world.ranks
        if shape.blocks:
            blocks = pin_hits(shape, lane, blocks, number, row, hits)
        blocks = take_blocks(shape, blocks, number, row + hits, fresh)
        chain = (ranks.asking, ranks.asking_end, seqs.link)
        asking, end, link = remove(chain, number, jnp.int32(-1), job)
        ranks = ranks._replace(
            asking=asking,
            asking_end=end,
            refused_at=ranks.refused_at.put(number, -1),
        )
        if shape.guaranteed:
            missing = demand - hits - fresh
            ranks = ranks._replace(promised=ranks.promised.add(number, missing))
        records, loop, cost = world.records, world.loop, lane.transfer
        world = world._replace(
            blocks=blocks,
            seqs=seqs._replace(
                link=link,
                blocks=seqs.blocks.put(job, hits + fresh),
                published=seqs.published.put(job, hits),
            ),
            ranks=ranks,
            records=records._replace(
                reserved_ms=records.reserved_ms.at[request].set(loop.now_ms)
            ),
        )
        tokens = jnp.where(cost.full_prompt > 0, isl, fresh * limits.block_size)
        moved_s = tokens.astype("float64") * cost.bytes_per_token / cost.bytes_per_s
        priced_ms = rounded(moved_s * 1000.0, moved_s)
        delay_ms = jnp.where(cost.priced > 0, priced_ms, cost.latency_ms)

        def travel(world: World) -> World:
            loop = world.loop
            worker = lane.places.worker_of_rank[number]
            tie = worker.astype("int64") * (1 << 40) + loop.inserted
            return world._replace(
                transfers=push(world.transfers, loop.now_ms + delay_ms, tie, request),
                loop=loop._replace(inserted=loop.inserted + 1),
            )

        world = when(delay_ms > 0, travel, world)
        return when(
            delay_ms <= 0,
            lambda world: put_action(shape, world, ACTIVATE, request),
            world,
        )

    def refuse(world: World) -> World:
        ranks = world.ranks
        return world._replace(
            ranks=ranks._replace(refused_at=ranks.refused_at.put(number, releases))
        )

    tried = (ranks.asking[number] >= 0) & (ranks.refused_at[number] != releases)
    world = when(tried & ~fits, refuse, world)
    return when(tried & fits, grant, world)


def _activate(
    shape: BlockShape, lane: BlockLane, world: World, request: Count
) -> World:
    """The KV is here: wait for a slot, in the order of the reservations."""
    job = shape.reqs + request
    number = world.records.rank[request]
    rank = rank_of(lane, number)
    seqs, ranks, records = world.seqs, world.ranks, world.records
    order = seqs.order[job]

    def further(carry: tuple[Count, Count]) -> tuple[Count, Count]:
        before, at = carry
        earlier = seqs.order.values[at] <= order
        return jnp.where(earlier, at, before), seqs.link.values[at]

    # Behind the last one that asked earlier.
    start = (jnp.int32(-1), ranks.waiting[number])
    before, _ = repeat(lambda carry: carry[1] >= 0, further, start)
    for read in (seqs.order, seqs.link):
        read.reads.append(before)
    chain = (ranks.waiting, ranks.waiting_end, seqs.link)
    waiting, end, link = insert(chain, number, before, job)
    seqs = seqs._replace(
        link=link,
        built=seqs.built.put(job, 1),
        computed=seqs.computed.put(job, lane.traffic.isl[request]),
    )
    ranks = ranks._replace(waiting=waiting, waiting_end=end)
    records = records._replace(
        activated_ms=records.activated_ms.at[request].set(world.loop.now_ms)
    )
    parts = Parts(world.blocks, seqs, ranks, records, world.logs)
    parts = publish(lane, shape, rank, parts, job)
    world = world._replace(
        blocks=parts.blocks, seqs=parts.seqs, ranks=parts.ranks, records=parts.records
    )
    return put_action(shape, world, RELEASE, request)


def _release(shape: BlockShape, lane: BlockLane, world: World, request: Count) -> World:
    """The source gives its blocks back."""
    number = world.records.source[request]
    row, held = lane.jobs.first_row[request], world.seqs.blocks[request]
    records = world.records
    return world._replace(
        blocks=release_blocks(shape, world.blocks, number, row, held),
        seqs=world.seqs._replace(blocks=world.seqs.blocks.put(request, 0)),
        records=records._replace(
            released_ms=records.released_ms.at[request].set(world.loop.now_ms)
        ),
    )


def run_actions(shape: BlockShape, lane: BlockLane, world: World, submit: Any) -> World:
    """All queued actions, and those that they queue, in order."""

    def act(code: Count, world: World) -> World:
        kind, what = code % KINDS, code // KINDS
        world = when(kind == SUBMIT, lambda w: submit(shape, lane, w, what), world)
        world = when(kind == RESERVE, lambda w: _ask(shape, lane, w, what), world)
        world = when(kind == ACTIVATE, lambda w: _activate(shape, lane, w, what), world)
        world = when(kind == RELEASE, lambda w: _release(shape, lane, w, what), world)
        target = jnp.where(kind == TRY, what, world.records.rank[what])
        target = jnp.maximum(target, 0)
        worker = lane.places.worker_of_rank[target]
        idle = world.workers.end_ms[worker] == jnp.inf
        tries = (kind == TRY) | (kind == ACTIVATE) | ((kind == RESERVE) & idle)
        return when(tries, lambda w: _try_reserve(shape, lane, w, target), world)

    def one(world: World) -> World:
        actions = world.actions
        code = actions.ring[actions.start % shape.actions]
        world = world._replace(
            actions=actions._replace(start=actions.start + 1),
            loop=world.loop._replace(changed=jnp.int32(1)),
        )
        worker = _worker_of(lane, world, code)
        stepping = world.workers.end_ms[jnp.maximum(worker, 0)] < jnp.inf
        put_off = (worker >= 0) & stepping

        def later(world: World) -> World:
            world = _defer(shape, world, code)
            arrives = code % KINDS == ACTIVATE
            return cut_stretch(lane, shape, world, worker, arrives)

        world = when(put_off, later, world)
        return when(~put_off, lambda world: act(code, world), world)

    return repeat(lambda world: world.actions.start < world.actions.end, one, world)
