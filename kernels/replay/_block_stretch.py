"""Decode passes that follow a planned pass unchanged, taken in one event.

While all running requests decode and nobody can enter, a pass only adds a token to each.
How many such passes follow is decided when a pass starts; whatever could change the
running set earlier cuts them at the next pass end. They take effect when they end.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from .._arrays import Array
from ._block_emit import SPEAKING, emit, log_tokens
from ._block_parts import Parts, Rank, grow, publish, rank_of, request_of
from ._block_plan import Work
from ._block_pool import available
from ._block_price import after_ns, decode_walk
from ._block_state import BlockLane, BlockShape, Logs, Workers, World, blocks_for
from ._radix_branch import repeat, when


Count = Int[Array, ""]
FAR = 2**30


def log_passes(
    shape: BlockShape,
    logs: Logs,
    span_ms: tuple[Float[Array, ""], Float[Array, ""]],
    rank: Count,
    passes: Count,
    sums: tuple[Count, ...],
) -> Logs:
    """One entry of equal passes of a rank; sums as in `Work`."""
    if not shape.passes:
        return logs
    at = jnp.minimum(logs.passes, shape.passes)
    counts = jnp.stack([rank, passes, *sums]).astype("int32")
    return logs._replace(
        pass_ms=logs.pass_ms.at[at].set(jnp.stack(span_ms)),
        pass_counts=logs.pass_counts.at[at].set(counts),
        passes=logs.passes + 1,
    )


def _followers(
    lane: BlockLane, shape: BlockShape, rank: Rank, parts: Parts, work: Work
) -> tuple[Count, Count]:
    """(passes that may follow unchanged, sum of lengths) after a planned pass."""
    number, limits = rank.number, rank.limits
    seqs, ranks, blocks = parts.seqs, parts.ranks, parts.blocks
    first, running = number * shape.slots, ranks.running[number]

    def one(carry: Any) -> Any:
        at, least, context, decoding = carry
        job = ranks.slots.values[first + at]
        length = seqs.length.values[job]
        left = lane.jobs.target[job] - length
        # The last token of a prompt is prefill work, however few are left.
        spoken = length > lane.traffic.isl[request_of(shape, job)]
        one_left = spoken & (length - seqs.computed.values[job] == 1)
        return (
            at + 1,
            jnp.minimum(least, left),
            context + length,
            decoding & one_left,
        )

    none = jnp.int32(0)
    start = (none, jnp.int32(FAR), none, jnp.bool_(True))
    _, most, context, decoding = repeat(lambda c: c[0] < running, one, start)
    unchanged = (work.prefill + work.admitted + work.preempted + work.rejected == 0) & (
        work.before == running
    )
    closed = (ranks.waiting[number] < 0) | (running >= limits.sequences) | unchanged
    steady = decoding & closed & (running > 0) & (running <= limits.budget)
    steady = steady & (limits.interval <= 1) & (limits.drafts == 0)
    # Who ends with the planned pass is reported at its end.
    steady = steady & (ranks.ended[number] < 0)
    if shape.pools > 1:
        refused = ranks.refused_at[number] == blocks.releases[number]
        steady = steady & ((ranks.asking[number] < 0) | refused)
        steady = steady & (rank.pool == 1)
    room = available(blocks, number)

    def needed(passes: Count) -> Count:
        def add(carry: Any) -> Any:
            at, total = carry
            job = ranks.slots.values[first + at]
            covered = seqs.computed.values[job] + passes
            more = blocks_for(covered, limits.block_size) - seqs.blocks.values[job]
            return at + 1, total + jnp.maximum(more, 0)

        return repeat(lambda c: c[0] < running, add, (none, none))[1]

    def halve(bounds: Any) -> Any:
        low, high = bounds
        middle = (low + high + 1) // 2
        inside = needed(middle) <= room
        return jnp.where(inside, middle, low), jnp.where(inside, high, middle - 1)

    most = jnp.where(steady, most, 0)
    # Every request takes at most one block per block_size passes.
    surely = room >= running * blocks_for(most, limits.block_size)
    low = jnp.where(surely, most, 0)
    most, _ = repeat(lambda bounds: bounds[0] < bounds[1], halve, (low, most))
    for read in (ranks.slots, seqs.length, seqs.computed, seqs.blocks):
        read.reads.append(most + context)
    return most, context


def stretch_pass(
    lane: BlockLane,
    shape: BlockShape,
    rank: Rank,
    parts: Parts,
    workers: Workers,
    worker: Count,
    work: Work,
    end_ms: Float[Array, ""],
    until_ms: Float[Array, ""],
) -> Workers:
    """Let a pass that ends at end_ms be followed by unchanged ones up to until_ms."""
    most, context = _followers(lane, shape, rank, parts, work)
    running = parts.ranks.running[rank.number]
    extra, last_ms = decode_walk(lane, running, context, end_ms, most, until_ms)
    return workers._replace(
        extra=workers.extra.put(worker, extra),
        contexts=workers.contexts.put(worker, context),
        planned_end_ms=workers.planned_end_ms.at[worker].set(end_ms),
        end_ms=workers.end_ms.at[worker].set(last_ms),
    )


def cut_stretch(
    lane: BlockLane,
    shape: BlockShape,
    world: World,
    worker: Count,
    wanted: Bool[Array, ""],
) -> World:
    """End a worker's stretch at the first pass end from now on."""
    now_ms, workers = world.loop.now_ms, world.workers
    extra = workers.extra[worker]
    stepping = workers.end_ms[worker] < jnp.inf

    def cut(world: World) -> World:
        workers = world.workers
        number = lane.places.first_rank[worker]
        running = world.ranks.running[number]
        passes, end_ms = decode_walk(
            lane,
            running,
            workers.contexts[worker],
            workers.planned_end_ms[worker],
            extra,
            now_ms,
        )
        return world._replace(
            workers=workers._replace(
                extra=workers.extra.put(worker, passes),
                end_ms=workers.end_ms.at[worker].set(end_ms),
            )
        )

    return when(wanted & stepping & (extra > 0), cut, world)


def end_at_ties(shape: BlockShape, lane: BlockLane, world: World) -> World:
    """Stretches that have a pass end now end here: it comes before what else happens."""
    now_ms = world.loop.now_ms

    def one(carry: tuple[Count, World]) -> tuple[Count, World]:
        worker, world = carry
        workers = world.workers
        extra = workers.extra[worker]
        inside = (extra > 0) & (workers.planned_end_ms[worker] <= now_ms)
        inside = inside & (workers.end_ms[worker] > now_ms)

        def look(workers: Workers) -> Workers:
            number = lane.places.first_rank[worker]
            passes, end_ms = decode_walk(
                lane,
                world.ranks.running.values[number],
                workers.contexts[worker],
                workers.planned_end_ms[worker],
                extra,
                now_ms,
            )
            tie = end_ms == now_ms
            ends_ms = jnp.where(tie, end_ms, workers.end_ms[worker])
            return workers._replace(
                extra=workers.extra.put(worker, passes, tie),
                end_ms=workers.end_ms.at[worker].set(ends_ms),
            )

        return worker + 1, world._replace(workers=when(inside, look, workers))

    start = (jnp.int32(0), world)
    return repeat(lambda carry: carry[0] < lane.places.workers, one, start)[1]


def finish_stretch(
    lane: BlockLane, shape: BlockShape, world: World, worker: Count
) -> World:
    """Carry out the passes of a stretch that ends now."""
    now_ms = world.loop.now_ms
    extra = world.workers.extra[worker]
    number = lane.places.first_rank[worker]
    rank = rank_of(lane, number)

    def carry_out(world: World) -> World:
        workers = world.workers
        start_ms, context = workers.planned_end_ms[worker], workers.contexts[worker]
        parts = Parts(world.blocks, world.seqs, world.ranks, world.records, world.logs)
        running = parts.ranks.running[number]
        first = number * shape.slots
        logs = log_passes(
            shape,
            parts.logs,
            (start_ms, now_ms),
            number,
            extra,
            (*[jnp.int32(0)] * 3, running, context),
        )
        if shape.tokens:
            logs = _log_stretch(
                lane, shape, rank, parts, logs, start_ms, context, extra
            )
        price = lane.steps[-1].decode_ns(running, context)
        second_ms = after_ns(start_ms, price)

        def one(carry: tuple[Count, Parts]) -> tuple[Count, Parts]:
            at, parts = carry
            seqs, records = parts.seqs, parts.records
            job = parts.ranks.slots[first + at]
            request = request_of(shape, job)
            length, computed = seqs.length[job], seqs.computed[job]
            is_second = (length - lane.traffic.isl[request] == 1) & (extra > 1)
            second_at = jnp.where(is_second, request, shape.reqs)
            covered = computed + extra
            need = blocks_for(covered, rank.limits.block_size) - seqs.blocks[job]
            parts = parts._replace(
                seqs=seqs._replace(
                    length=seqs.length.put(job, length + extra - 1),
                    computed=seqs.computed.put(job, covered),
                ),
                records=records._replace(
                    second_ms=records.second_ms.at[second_at].set(second_ms)
                ),
            )
            parts = when(
                need > 0,
                lambda parts: grow(lane, shape, rank, parts, job, need),
                parts,
            )
            return at + 1, publish(lane, shape, rank, parts, job)

        start = (jnp.int32(0), parts._replace(logs=logs))
        _, parts = repeat(lambda carry: carry[0] < running, one, start)
        parts = emit(lane, shape, rank, parts, now_ms, SPEAKING)
        return world._replace(
            blocks=parts.blocks,
            seqs=parts.seqs,
            ranks=parts.ranks,
            records=parts.records,
            logs=parts.logs,
            workers=workers._replace(
                extra=workers.extra.put(worker, 0),
                busy_ms=workers.busy_ms.at[worker].add(now_ms - start_ms),
            ),
        )

    return when(extra > 0, carry_out, world)


def _log_stretch(
    lane: BlockLane,
    shape: BlockShape,
    rank: Rank,
    parts: Parts,
    logs: Logs,
    start_ms: Float[Array, ""],
    context: Count,
    extra: Count,
) -> Logs:
    """Token instants of all passes of a stretch but its last."""
    seqs, ranks = parts.seqs, parts.ranks
    first, running = rank.number * shape.slots, ranks.running[rank.number]
    steps = lane.steps[-1]

    def one_pass(carry: Any) -> Any:
        done, at_ms, logs = carry
        at_ms = after_ns(at_ms, steps.decode_ns(running, context + running * done))

        def one(carry: Any) -> Any:
            at, logs = carry
            job = ranks.slots.values[first + at]
            request = request_of(shape, job)
            token = seqs.length.values[job] - lane.traffic.isl[request] + done
            count = jnp.int32(1)
            return at + 1, log_tokens(lane, shape, logs, request, token, count, at_ms)

        _, logs = repeat(lambda c: c[0] < running, one, (jnp.int32(0), logs))
        return done + 1, at_ms, logs

    start = (jnp.int32(0), start_ms, logs)
    done, _, logs = repeat(lambda carry: carry[0] < extra - 1, one_pass, start)
    for read in (ranks.slots, seqs.length):
        read.reads.append(done)
    return logs
