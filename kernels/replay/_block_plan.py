"""One pass of a vLLM or TensorRT-LLM rank: running requests first, then the queue."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from .._arrays import Array
from ._block_cells import Cells, choose, repeat, when
from ._block_pool import (
    available,
    idle_hits,
    leading_hits,
    pin_hits,
    publish_blocks,
    release_blocks,
    take_blocks,
)
from ._block_queue import append, insert, remove
from ._block_state import (
    BlockLane,
    Blocks,
    BlockShape,
    Logs,
    PoolLimits,
    Ranks,
    Records,
    Sequences,
    blocks_for,
    whole,
)


Count = Int[Array, ""]


class Rank(NamedTuple):
    """Which rank plans, and the settings of its pool (scalars of `PoolLimits`)."""

    number: Count
    pool: Count
    limits: PoolLimits


class Parts(NamedTuple):
    """What a pass changes."""

    blocks: Blocks
    seqs: Sequences
    ranks: Ranks
    records: Records
    logs: Logs


class Work(NamedTuple):
    """What was decided, and the sums that price it. served: running requests reached."""

    budget: Count
    served: Count
    before: Count
    admitted: Count
    rejected: Count
    preempted: Count
    prefill: Count
    through: Count
    prefix: Count
    decode: Count
    context: Count
    scheduled: Count
    committed: Count
    ready: Count
    overflow: Bool[Array, ""]


def rank_of(lane: BlockLane, number: Count) -> Rank:
    """A rank by its number."""
    pool = lane.places.pool_of_rank[number]
    return Rank(number, pool, jax.tree.map(lambda field: field[pool], lane.limits))


def request_of(shape: BlockShape, job: Count) -> Count:
    """The request of a job."""
    return job % shape.reqs if shape.pools > 1 else job


def to_completion(
    lane: BlockLane, shape: BlockShape, rank: Rank, seqs: Sequences, job: Count
) -> Count:
    """Blocks that an admission must find."""
    tokens = lane.jobs.target[job] if shape.guaranteed else seqs.length[job]
    return blocks_for(tokens, rank.limits.block_size)


def missing_blocks(
    lane: BlockLane, shape: BlockShape, rank: Rank, seqs: Sequences, job: Count
) -> Count:
    """Blocks promised to an admitted job (TensorRT-LLM)."""
    if not shape.guaranteed:
        return jnp.int32(0)
    whole_job = to_completion(lane, shape, rank, seqs, job)
    return whole_job - seqs.blocks[job]


def grow(
    lane: BlockLane, shape: BlockShape, rank: Rank, parts: Parts, job: Count, by: Count
) -> Parts:
    """Give a running job `by` more blocks; there must be enough."""
    blocks, seqs, ranks = parts.blocks, parts.seqs, parts.ranks
    held = seqs.blocks[job]
    row = lane.jobs.first_row[job]
    blocks = take_blocks(shape, blocks, rank.number, row + held, by)
    if shape.guaranteed:
        ranks = ranks._replace(promised=ranks.promised.add(rank.number, -by))
    seqs = seqs._replace(blocks=seqs.blocks.put(job, held + by))
    return parts._replace(blocks=blocks, seqs=seqs, ranks=ranks)


def publish(
    lane: BlockLane, shape: BlockShape, rank: Rank, parts: Parts, job: Count
) -> Parts:
    """Make the full blocks of computed tokens findable."""
    if not shape.blocks:
        return parts
    seqs = parts.seqs
    full = whole(seqs.computed[job], rank.limits.block_size)
    start = seqs.published[job]

    def some(parts: Parts) -> Parts:
        row = lane.jobs.first_row[job]
        return parts._replace(
            blocks=publish_blocks(
                shape, lane, parts.blocks, rank.number, row, start, full
            ),
            seqs=parts.seqs._replace(published=parts.seqs.published.put(job, full)),
        )

    return when((full > start) & (rank.limits.caching > 0), some, parts)


def give_back(
    lane: BlockLane, shape: BlockShape, rank: Rank, parts: Parts, job: Count
) -> Parts:
    """Release all blocks of a job that leaves the running set."""
    seqs, ranks = parts.seqs, parts.ranks
    row, held = lane.jobs.first_row[job], seqs.blocks[job]
    if shape.guaranteed:
        missing = missing_blocks(lane, shape, rank, seqs, job)
        ranks = ranks._replace(promised=ranks.promised.add(rank.number, -missing))
    return parts._replace(
        blocks=release_blocks(shape, parts.blocks, rank.number, row, held),
        seqs=seqs._replace(
            blocks=seqs.blocks.put(job, 0), published=seqs.published.put(job, 0)
        ),
        ranks=ranks,
    )


def _drop_slot(slots: Cells, first: Count, place: Count, running: Count) -> Cells:
    """Slots of a rank without the one at `place`."""

    def shift(carry: tuple[Count, Cells]) -> tuple[Count, Cells]:
        at, slots = carry
        return at + 1, slots.put(first + at, slots[first + at + 1])

    return repeat(lambda carry: carry[0] < running - 1, shift, (place, slots))[1]


def _preempt(
    lane: BlockLane, shape: BlockShape, rank: Rank, parts: Parts, place: Count
) -> Parts:
    """Send the running request at `place` back to the front of the queue."""
    number = rank.number
    running = parts.ranks.running[number]
    first = number * shape.slots
    job = parts.ranks.slots[first + place]
    parts = give_back(lane, shape, rank, parts, job)
    seqs, ranks = parts.seqs, parts.ranks
    slots = _drop_slot(ranks.slots, first, place, running)
    chain = (ranks.waiting, ranks.waiting_end, seqs.link)
    waiting, end, link = insert(chain, number, jnp.int32(-1), job)
    return parts._replace(
        seqs=seqs._replace(
            computed=seqs.computed.put(job, 0), built=seqs.built.put(job, 0), link=link
        ),
        ranks=ranks._replace(
            slots=slots,
            running=ranks.running.put(number, running - 1),
            waiting=waiting,
            waiting_end=end,
        ),
    )


class _Serving(NamedTuple):
    place: Count
    budget: Count
    preempted: Count
    stop: Bool[Array, ""]
    parts: Parts


def serve_running(
    lane: BlockLane, shape: BlockShape, rank: Rank, parts: Parts, defer: Bool[Array, ""]
) -> _Serving:
    """Give running requests tokens in order, preempting where blocks run out."""
    limits, number = rank.limits, rank.number
    first = number * shape.slots

    def going(state: _Serving) -> Bool[Array, ""]:
        inside = state.place < state.parts.ranks.running[number]
        return inside & (state.budget > 0) & ~state.stop

    def serve(state: _Serving) -> _Serving:
        seqs = state.parts.seqs
        job = state.parts.ranks.slots[first + state.place]
        length, computed = seqs.length[job], seqs.computed[job]
        rest = length - computed
        skip = defer & (computed < lane.traffic.isl[request_of(shape, job)])
        stop = ~skip & (limits.chunked == 0) & (rest > state.budget)
        take = jnp.where(skip | stop, 0, jnp.minimum(rest, state.budget))
        cover = computed + take
        if shape.drafts:
            ahead = jnp.where(limits.drafts > 0, limits.drafts + 1, 0)
            cover = cover + jnp.where(cover == length, ahead, 0)
        held = seqs.blocks[job]
        need = jnp.maximum(blocks_for(cover, limits.block_size) - held, 0)
        need = jnp.where(skip | stop, 0, need)
        state = state._replace(stop=stop)

        def short(state: _Serving) -> Bool[Array, ""]:
            return ~state.stop & (available(state.parts.blocks, number) < need)

        def make_room(state: _Serving) -> _Serving:
            ranks = state.parts.ranks
            running = ranks.running[number]
            victim = jnp.where(limits.oldest_first > 0, 0, running - 1)
            earlier = victim < state.place
            returned = state.parts.seqs.taken[ranks.slots[first + victim]]
            return _Serving(
                place=state.place - earlier,
                budget=state.budget + jnp.where(earlier, returned, 0),
                preempted=state.preempted + 1,
                stop=victim == state.place,
                parts=_preempt(lane, shape, rank, state.parts, victim),
            )

        def extend(state: _Serving) -> _Serving:
            state = repeat(short, make_room, state)
            by = jnp.where(state.stop, 0, need)
            parts = grow(lane, shape, rank, state.parts, job, by)
            return state._replace(parts=parts)

        state = when(need > 0, extend, state)
        kept = ~state.stop
        seqs = state.parts.seqs
        seqs = seqs._replace(
            taken=seqs.taken.put(job, take, kept),
            computed=seqs.computed.put(job, computed + take, kept),
        )
        parts = publish(lane, shape, rank, state.parts._replace(seqs=seqs), job)
        return state._replace(
            place=state.place + kept,
            budget=state.budget - jnp.where(kept, take, 0),
            parts=parts,
        )

    none = jnp.int32(0)
    return repeat(
        going, serve, _Serving(none, limits.budget, none, jnp.bool_(False), parts)
    )


class _Admitting(NamedTuple):
    budget: Count
    admitted: Count
    rejected: Count
    stop: Bool[Array, ""]
    overflow: Bool[Array, ""]
    parts: Parts


def _queue_head(
    shape: BlockShape, rank: Rank, seqs: Sequences, ranks: Ranks
) -> tuple[Count, Count]:
    """(predecessor, job) next to admit.

    Who comes without KV waits while destinations are asked for.
    """
    head, none = ranks.waiting[rank.number], jnp.int32(-1)
    if shape.pools == 1:
        return none, head
    asking = ranks.asking[rank.number] >= 0

    def going(carry):
        _, job = carry
        return asking & (job >= 0) & (seqs.built.values[jnp.maximum(job, 0)] == 0)

    def following(carry):
        _, job = carry
        return job, seqs.link.values[job]

    before, job = repeat(going, following, (none, head))
    seqs.built.reads.append(job)
    seqs.link.reads.append(job)
    return before, job


def admit_waiting(
    lane: BlockLane,
    shape: BlockShape,
    rank: Rank,
    parts: Parts,
    budget: Count,
    defer: Bool[Array, ""],
    now_ms: Float[Array, ""],
) -> _Admitting:
    """Admit from the head of the queue while slots, blocks and budget allow."""
    limits, number = rank.limits, rank.number
    size = limits.block_size

    def going(state: _Admitting) -> Bool[Array, ""]:
        ranks = state.parts.ranks
        some = ranks.waiting[number] >= 0
        return ~state.stop & some & (ranks.running[number] < limits.sequences)

    def look(state: _Admitting) -> _Admitting:
        parts = state.parts
        seqs, ranks = parts.seqs, parts.ranks
        before, job = _queue_head(shape, rank, seqs, ranks)
        nobody = job < 0
        job = jnp.maximum(job, 0)
        request = request_of(shape, job)
        isl, length = lane.traffic.isl[request], seqs.length[job]
        demand = to_completion(lane, shape, rank, seqs, job)
        built = seqs.built[job] > 0
        new = (seqs.admissions[job] == 0) & ~built
        refuse = (isl >= limits.max_model_len) | (new & (demand > limits.blocks))
        row = lane.jobs.first_row[job]
        hits = idle = jnp.int32(0)
        if shape.blocks:
            keep = jnp.int32(0) if shape.guaranteed else lane.jobs.wants[job]
            most = whole(length - keep, size)
            look_up = (limits.caching > 0) & ~built & ~refuse & ~nobody
            hits = leading_hits(
                shape, lane, parts.blocks, number, row, jnp.where(look_up, most, 0)
            )
            if shape.drafts and not shape.guaranteed:
                hits = hits - ((hits > 0) & (limits.drafts > 0))
            idle = idle_hits(shape, lane, parts.blocks, number, row, hits)
        room = available(parts.blocks, number)
        if shape.guaranteed:
            room = room - ranks.promised[number]
        fits = demand - (hits - idle) <= room
        reuse = jnp.where(built, 0, hits * size)
        rest = length - reuse
        take = jnp.where(built, 0, jnp.minimum(rest, state.budget))
        cut = (rest > 0) & ((take == 0) | ((limits.chunked == 0) & (rest > state.budget)))
        able = built | (fits & ~cut & ~(defer & (rest > 1)))
        full = ranks.running[number] >= shape.slots
        refuse = refuse & ~nobody
        admit = able & ~refuse & ~nobody & ~full

        def leave_queue(parts: Parts) -> Parts:
            seqs, ranks = parts.seqs, parts.ranks
            chain = (ranks.waiting, ranks.waiting_end, seqs.link)
            waiting, end, link = remove(chain, number, before, job)
            return parts._replace(
                seqs=seqs._replace(link=link),
                ranks=ranks._replace(waiting=waiting, waiting_end=end),
            )

        def reject(parts: Parts) -> Parts:
            parts = leave_queue(parts)
            seqs, ranks = parts.seqs, parts.ranks
            chain = (ranks.ended, ranks.ended_end, seqs.link)
            ended, end, link = append(chain, number, job)
            return parts._replace(
                seqs=seqs._replace(taken=seqs.taken.put(job, -1), link=link),
                ranks=ranks._replace(ended=ended, ended_end=end),
            )

        def allocate(parts: Parts) -> Parts:
            blocks, seqs, ranks = parts.blocks, parts.seqs, parts.ranks
            fresh = blocks_for(reuse + take, size) - hits
            if shape.blocks:
                blocks = pin_hits(shape, lane, blocks, number, row, hits)
            blocks = take_blocks(shape, blocks, number, row + hits, fresh)
            if shape.guaranteed:
                missing = demand - hits - fresh
                ranks = ranks._replace(promised=ranks.promised.add(number, missing))
            return parts._replace(
                blocks=blocks,
                ranks=ranks,
                seqs=seqs._replace(
                    blocks=seqs.blocks.put(job, hits + fresh),
                    published=seqs.published.put(job, hits),
                    computed=seqs.computed.put(job, reuse + take),
                ),
            )

        def enter(parts: Parts) -> Parts:
            parts = leave_queue(parts)
            parts = when(~built, allocate, parts)
            seqs, ranks = parts.seqs, parts.ranks
            running, count = ranks.running[number], seqs.admissions[job]
            records = _admission_record(
                shape, rank, parts.records, request, reuse, count == 0, now_ms
            )
            parts = parts._replace(
                seqs=seqs._replace(
                    admissions=seqs.admissions.put(job, count + 1),
                    taken=seqs.taken.put(job, take),
                ),
                ranks=ranks._replace(
                    slots=ranks.slots.put(number * shape.slots + running, job),
                    running=ranks.running.put(number, running + 1),
                ),
                records=records,
                logs=_log_admission(shape, rank, parts.logs, request, reuse, now_ms),
            )
            return publish(lane, shape, rank, parts, job)

        parts = when(refuse, reject, parts)
        parts = when(admit, enter, parts)
        budget = state.budget - jnp.where(admit, take, 0)
        return _Admitting(
            budget=budget,
            admitted=state.admitted + admit,
            rejected=state.rejected + refuse,
            stop=~(admit | refuse) | (admit & (take == 0) & (budget == 0)),
            overflow=state.overflow | (able & ~refuse & ~nobody & full),
            parts=parts,
        )

    no, none = jnp.bool_(False), jnp.int32(0)
    return repeat(going, look, _Admitting(budget, none, none, no, no, parts))


def _admission_record(
    shape: BlockShape,
    rank: Rank,
    records: Records,
    request: Count,
    reuse: Count,
    first: Bool[Array, ""],
    now_ms: Float[Array, ""],
) -> Records:
    spare = shape.reqs
    entry = rank.pool == 0
    at = jnp.where(first & entry, request, spare)
    most = jnp.maximum(records.reuse[request], reuse)
    records = records._replace(
        admit_ms=records.admit_ms.at[at].set(now_ms),
        first_reuse=records.first_reuse.at[at].set(reuse),
        reuse=records.reuse.put(request, most, entry),
    )
    if shape.pools > 1:
        later = jnp.where(first & ~entry, request, spare)
        records = records._replace(
            prefill_admit_ms=records.prefill_admit_ms.at[at].set(now_ms),
            decode_admit_ms=records.decode_admit_ms.at[later].set(now_ms),
        )
    return records


def _log_admission(
    shape: BlockShape,
    rank: Rank,
    logs: Logs,
    request: Count,
    reuse: Count,
    now_ms: Float[Array, ""],
) -> Logs:
    if not shape.admissions:
        return logs
    at = jnp.minimum(logs.admissions, shape.admissions)
    row = jnp.stack([request, rank.pool, reuse]).astype("int32")
    return logs._replace(
        admission_ms=logs.admission_ms.at[at].set(now_ms),
        admission=logs.admission.at[at].set(row),
        admissions=logs.admissions + 1,
    )


def plan_pass(
    lane: BlockLane,
    shape: BlockShape,
    rank: Rank,
    parts: Parts,
    group_pass: Count,
    now_ms: Float[Array, ""],
) -> tuple[Parts, Work]:
    """Schedule one pass; tokens come out when its length is known."""
    number, limits = rank.number, rank.limits
    first = number * shape.slots
    seqs, ranks = parts.seqs, parts.ranks
    running = ranks.running[number]
    due = (limits.interval > 1) & (group_pass % limits.interval != 0)
    due = due & (ranks.bound[number] == 0)

    def any_decodes(carry):
        at, found = carry
        job = ranks.slots.values[first + at]
        isl = lane.traffic.isl[request_of(shape, job)]
        return at + 1, found | (seqs.computed.values[job] >= isl)

    _, decodes = repeat(
        lambda carry: (carry[0] < running) & due & ~carry[1],
        any_decodes,
        (jnp.int32(0), jnp.bool_(False)),
    )
    defer = due & decodes
    for read in (ranks.slots, seqs.computed):
        read.reads.append(decodes.astype("int32"))
    served = serve_running(lane, shape, rank, parts, defer)
    before = served.parts.ranks.running[number]
    none, no = jnp.int32(0), jnp.bool_(False)

    def queue(parts: Parts) -> _Admitting:
        return admit_waiting(lane, shape, rank, parts, served.budget, defer, now_ms)

    def skip(parts: Parts) -> _Admitting:
        return _Admitting(served.budget, none, none, no, no, parts)

    closed = served.preempted > 0
    found = choose(closed, skip, queue, served.parts)
    parts = found.parts
    bound = (parts.ranks.waiting[number] >= 0) & ~defer & ~closed
    parts = parts._replace(
        ranks=parts.ranks._replace(
            bound=parts.ranks.bound.put(number, bound.astype("int32"))
        )
    )
    work = Work(
        budget=found.budget,
        served=served.place,
        before=before,
        admitted=found.admitted,
        rejected=found.rejected,
        preempted=served.preempted,
        prefill=none,
        through=none,
        prefix=none,
        decode=none,
        context=none,
        scheduled=none,
        committed=none,
        ready=none,
        overflow=found.overflow,
    )
    return _charged(lane, shape, rank, parts, work)


def _charged(
    lane: BlockLane, shape: BlockShape, rank: Rank, parts: Parts, work: Work
) -> tuple[Parts, Work]:
    """Sums over the running requests: what was computed, and who decodes."""
    seqs, ranks = parts.seqs, parts.ranks
    first = rank.number * shape.slots
    running = ranks.running[rank.number]
    pays_prefill = jnp.bool_(True) if shape.pools == 1 else rank.pool == 0

    def one(carry: tuple[Count, Work]) -> tuple[Count, Work]:
        at, work = carry
        job = ranks.slots.values[first + at]
        isl = lane.traffic.isl[request_of(shape, job)]
        length, computed = seqs.length.values[job], seqs.computed.values[job]
        reached = (at < work.served) | (at >= work.before)
        take = jnp.where(reached, seqs.taken.values[job], 0)
        before = computed - take
        through = jnp.minimum(computed, isl)
        prompt = pays_prefill & (through > before)
        ready = length == computed
        remains = lane.jobs.target[job] > length
        decode = ready & remains & ((length > isl) | (take == 0))
        return at + 1, work._replace(
            prefill=work.prefill + prompt,
            through=work.through + jnp.where(prompt, through, 0),
            prefix=work.prefix + jnp.where(prompt, before, 0),
            decode=work.decode + decode,
            context=work.context + jnp.where(decode, length, 0),
            scheduled=work.scheduled + take,
            committed=work.committed + jnp.where(before < isl, take, 0),
            ready=work.ready + ready,
        )

    _, work = repeat(lambda carry: carry[0] < running, one, (jnp.int32(0), work))
    for read in (ranks.slots, seqs.length, seqs.computed, seqs.taken):
        read.reads.append(work.ready)
    return parts, work
