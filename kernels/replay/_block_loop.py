"""Virtual time of the block engine: pass ends, hand-overs, arrivals, passes that start."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from .._arrays import Array
from ._block_emit import SILENT, SPEAKING, emit
from ._block_handoff import deliver_transfers, pass_ended, run_actions, wake_deferred
from ._block_parts import Parts, rank_of
from ._block_plan import Work, no_work, plan_pass
from ._block_price import pass_end
from ._block_queue import soonest_ms
from ._block_state import (
    DRAWS_USED,
    FINISHED,
    LOG_FULL,
    RUNNING,
    SLOTS_FULL,
    STALLED,
    UNPRICED,
    BlockLane,
    BlockShape,
    World,
    fresh_world,
)
from ._block_stretch import end_at_ties, finish_stretch, log_passes, stretch_pass
from ._block_traffic import (
    end_requests,
    leave_tokenizers,
    next_arrival_ms,
    open_loop,
    release_arrivals,
    submit,
)
from ._radix_branch import repeat, when


Count = Int[Array, ""]
ENDS, STARTS = 0, 1


def _has_work(world: World, rank: Count) -> Bool[Array, ""]:
    return (world.ranks.running[rank] > 0) | (world.ranks.waiting[rank] >= 0)


def _works(shape: BlockShape, lane: BlockLane, world: World, worker: Count):
    """Whether any rank of the worker has work."""
    pool = lane.places.pool_of_worker[worker]
    first, ranks = lane.places.first_rank[worker], lane.limits.ranks[pool]
    running, waiting = world.ranks.running, world.ranks.waiting

    def one(carry: Any) -> Any:
        at, found = carry
        busy = running.values[first + at] > 0
        return at + 1, found | busy | (waiting.values[first + at] >= 0)

    start = (jnp.int32(0), jnp.bool_(False))
    found = repeat(lambda c: (c[0] < ranks) & ~c[1], one, start)[1]
    running.reads.append(found.astype("int32"))
    waiting.reads.append(found.astype("int32"))
    return found


def _parts(world: World) -> Parts:
    return Parts(world.blocks, world.seqs, world.ranks, world.records, world.logs)


def _with_parts(world: World, parts: Parts) -> World:
    return world._replace(
        blocks=parts.blocks,
        seqs=parts.seqs,
        ranks=parts.ranks,
        records=parts.records,
        logs=parts.logs,
    )


def _end_pass(shape: BlockShape, lane: BlockLane, world: World, worker: Count) -> World:
    """The pass of a worker ends now."""
    workers = world.workers
    world = world._replace(
        workers=workers._replace(end_ms=workers.end_ms.at[worker].set(jnp.inf))
    )
    world = finish_stretch(lane, shape, world, worker)
    pool = lane.places.pool_of_worker[worker]
    first, ranks = lane.places.first_rank[worker], lane.limits.ranks[pool]

    def ends(carry: tuple[Count, World]) -> tuple[Count, World]:
        at, world = carry
        number, blocks, ranks = first + at, world.blocks, world.ranks
        world = world._replace(
            ranks=ranks._replace(
                stored=ranks.stored.put(number, blocks.stored[number]),
                removed=ranks.removed.put(number, blocks.removed[number]),
            )
        )
        return at + 1, end_requests(shape, lane, world, number)

    start = (jnp.int32(0), world)
    _, world = repeat(lambda carry: carry[0] < ranks, ends, start)
    drained = ~_works(shape, lane, world, worker)
    workers, loop = world.workers, world.loop
    computed = loop.prefill_tokens + workers.prefill_tokens[worker]
    world = world._replace(
        workers=workers._replace(
            group_pass=workers.group_pass.put(worker, 0, drained),
            prefill_tokens=workers.prefill_tokens.put(worker, 0),
        ),
        loop=loop._replace(prefill_tokens=computed),
    )
    if shape.pools == 1:
        return world

    def hands(carry: tuple[Count, World]) -> tuple[Count, World]:
        at, world = carry
        return at + 1, pass_ended(shape, lane, world, first + at)

    _, world = repeat(lambda carry: carry[0] < ranks, hands, (jnp.int32(0), world))
    return wake_deferred(shape, lane, world, worker)


def _plan_ranks(
    shape: BlockShape, lane: BlockLane, world: World, worker: Count
) -> tuple[World, Int[Array, "ranks six"], Float[Array, ""], Bool[Array, ""], Work]:
    """Plan all ranks of a worker: (world, sums, group end, any effect, last work)."""
    pool = lane.places.pool_of_worker[worker]
    first, ranks = lane.places.first_rank[worker], lane.limits.ranks[pool]
    now_ms, group_pass = world.loop.now_ms, world.workers.group_pass[worker]

    def plan(carry: Any) -> Any:
        at, world, sums, end_ms, effect, _ = carry
        number = first + at
        rank = rank_of(lane, number)
        parts, work = plan_pass(lane, shape, rank, _parts(world), group_pass, now_ms)
        world = _with_parts(world, parts)
        ends_ms, price = pass_end(lane, shape, pool, work, now_ms)
        loop = world.loop
        free = world.blocks.free[number] + world.blocks.idle[number]
        used = rank.limits.blocks - free
        peak = jnp.maximum(world.ranks.peak[number], used)
        status = jnp.where(work.overflow, SLOTS_FULL, loop.status)
        status = jnp.where(price < 0, UNPRICED, status)
        world = world._replace(
            ranks=world.ranks._replace(peak=world.ranks.peak.put(number, peak)),
            workers=world.workers._replace(
                prefill_tokens=world.workers.prefill_tokens.add(worker, work.committed)
            ),
            loop=loop._replace(
                preemptions=loop.preemptions + work.preempted,
                status=status.astype("int32"),
            ),
        )
        does = work.admitted + work.rejected + work.preempted + work.scheduled
        row = (
            work.prefill,
            work.through,
            work.prefix,
            work.decode,
            work.context,
            work.silent,
        )
        return (
            at,
            world,
            sums.at[at].set(jnp.stack(row)),
            jnp.maximum(end_ms, ends_ms),
            effect | (does + work.ready > 0),
            work,
        )

    def one(carry: Any) -> Any:
        busy = _has_work(carry[1], first + carry[0])
        at, *planned = when(busy, plan, carry)
        return at + 1, *planned

    none = jnp.int32(0)
    work = no_work()
    sums = jnp.zeros((shape.ranks, 6), jnp.int32)
    start = (none, world, sums, now_ms, jnp.bool_(False), work)
    _, world, sums, end_ms, effect, work = repeat(
        lambda carry: carry[0] < ranks, one, start
    )
    return world, sums, end_ms, effect, work


def _start_pass(
    shape: BlockShape, lane: BlockLane, world: World, worker: Count
) -> World:
    """Plan a pass of an idle worker; one that takes no time ends before anything else."""
    pool = lane.places.pool_of_worker[worker]
    first, ranks = lane.places.first_rank[worker], lane.limits.ranks[pool]
    now_ms = world.loop.now_ms
    world, sums, end_ms, effect, work = _plan_ranks(shape, lane, world, worker)
    workers = world.workers
    world = world._replace(
        workers=workers._replace(
            group_pass=workers.group_pass.add(worker, 1),
            busy_ms=workers.busy_ms.at[worker].add(end_ms - now_ms),
        )
    )

    def out(carry: tuple[Count, Parts]) -> tuple[Count, Parts]:
        at, parts = carry
        row = sums[at]
        silent = jnp.where(row[5] > 0, SILENT, SPEAKING)
        parts = emit(lane, shape, rank_of(lane, first + at), parts, end_ms, silent)
        logs = when(
            row[0] + row[3] > 0,
            lambda logs: log_passes(
                shape,
                logs,
                (now_ms, end_ms),
                first + at,
                jnp.int32(1),
                tuple(row[i] for i in range(5)),
            ),
            parts.logs,
        )
        return at + 1, parts._replace(logs=logs)

    start = (jnp.int32(0), _parts(world))
    _, parts = repeat(lambda carry: carry[0] < ranks, out, start)
    world = _with_parts(world, parts)

    def step(world: World) -> World:
        workers = world.workers
        world = world._replace(
            workers=workers._replace(end_ms=workers.end_ms.at[worker].set(end_ms))
        )

        def stretch(world: World) -> World:
            parts = _parts(world)
            receptive = world.ranks.waiting[first] < 0
            receptive = receptive & (
                world.ranks.running[first] < lane.limits.sequences[pool]
            )
            alone = (lane.limits.workers[0] == 1) & (shape.pools == 1)
            until_ms = jnp.where(
                receptive & alone, next_arrival_ms(shape, lane, world), jnp.inf
            )
            workers = stretch_pass(
                lane,
                shape,
                rank_of(lane, first),
                parts,
                world.workers,
                worker,
                work,
                end_ms,
                until_ms,
            )
            return world._replace(workers=workers)

        return when(ranks == 1, stretch, world)

    takes_time = end_ms > now_ms
    world = when(takes_time, step, world)
    at_once = ~takes_time & effect
    loop = world.loop
    return world._replace(
        loop=loop._replace(
            changed=loop.changed | (takes_time | effect),
            chain=jnp.where(at_once, worker, -1).astype("int32"),
            phase=jnp.where(at_once, ENDS, STARTS).astype("int32"),
            worker=jnp.where(at_once, worker, worker + 1).astype("int32"),
            events=loop.events + 1,
        )
    )


def _deliver(shape: BlockShape, lane: BlockLane, world: World) -> World:
    """One pass end; or, when there is none, transfers, actions and arrivals."""
    loop = world.loop
    chained = loop.chain >= 0
    due = world.workers.end_ms <= loop.now_ms
    worker = jnp.where(chained, loop.chain, jnp.argmax(due)).astype("int32")
    ends = chained | jnp.any(due)
    none_left = jnp.sum(due, dtype=jnp.int32) <= 1
    world = when(ends, lambda world: _end_pass(shape, lane, world, worker), world)
    world = world._replace(
        loop=world.loop._replace(
            changed=world.loop.changed | (ends & ~chained),
            chain=jnp.int32(-1),
            phase=jnp.where(chained, STARTS, world.loop.phase).astype("int32"),
        )
    )

    def arrive(world: World) -> World:
        if shape.pools > 1:
            world = deliver_transfers(world, shape)
            world = run_actions(shape, lane, world, submit)
            world = leave_tokenizers(shape, lane, world)
        world = release_arrivals(shape, lane, world)
        if shape.pools == 1:
            world = leave_tokenizers(shape, lane, world)
        return world._replace(
            loop=world.loop._replace(phase=jnp.int32(STARTS), worker=jnp.int32(0))
        )

    return when(~chained & none_left, arrive, world)


def _advance(shape: BlockShape, lane: BlockLane, world: World) -> World:
    """Every worker had its turn: the instant again if something changed, or the next."""
    loop = world.loop
    startup = lane.limits.startup_ms
    soon = jnp.min(jnp.where(startup > loop.now_ms, startup, jnp.inf))
    soon = jnp.minimum(soon, jnp.min(world.workers.end_ms))
    soon = jnp.minimum(soon, next_arrival_ms(shape, lane, world))
    if shape.pools > 1:
        soon = jnp.minimum(soon, soonest_ms(world.transfers))
    again = loop.changed > 0
    over = ~again & ((soon == jnp.inf) | (soon > lane.traffic.until_ms))
    stuck = (soon == jnp.inf) & (loop.in_flight > 0)
    status = jnp.where(over, jnp.where(stuck, STALLED, FINISHED), loop.status)
    status = jnp.where(loop.status != RUNNING, loop.status, status)
    if shape.passes:
        full = world.logs.passes > shape.passes
        full = full | (world.logs.admissions > shape.admissions)
        status = jnp.where(full, LOG_FULL, status)
    if shape.drafts:
        used = jnp.max(world.ranks.drawn.values) > shape.draws
        status = jnp.where(used, DRAWS_USED, status)
    world = world._replace(
        loop=loop._replace(
            now_ms=jnp.where(again | over, loop.now_ms, soon),
            phase=jnp.int32(ENDS),
            worker=jnp.int32(0),
            changed=jnp.int32(0),
            status=status.astype("int32"),
        )
    )
    several = lane.places.workers > 1
    return when(
        several & ~again & ~over,
        lambda world: end_at_ties(shape, lane, world),
        world,
    )


def _step(shape: BlockShape, lane: BlockLane, world: World) -> World:
    world = when(
        world.loop.phase == ENDS, lambda world: _deliver(shape, lane, world), world
    )
    loop = world.loop
    worker = jnp.minimum(loop.worker, shape.workers - 1)
    turn = (loop.phase == STARTS) & (loop.worker < lane.places.workers)
    pool = lane.places.pool_of_worker[worker]
    ready = lane.limits.startup_ms[pool] <= loop.now_ms
    idle = world.workers.end_ms[worker] == jnp.inf
    able = turn & ready & idle
    works = able & _works(shape, lane, world, worker)
    world = world._replace(loop=loop._replace(worker=loop.worker + (turn & ~works)))
    world = when(works, lambda world: _start_pass(shape, lane, world, worker), world)
    loop = world.loop
    last = (loop.phase == STARTS) & (loop.worker >= lane.places.workers)
    return when(last, lambda world: _advance(shape, lane, world), world)


def run_blocks(shape: BlockShape, lane: BlockLane) -> World:
    """Run one lane to its end."""
    world = open_loop(shape, lane, fresh_world(shape, lane))
    return repeat(
        lambda world: world.loop.status == RUNNING,
        lambda world: _step(shape, lane, world),
        world,
    )
