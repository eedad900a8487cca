"""Admission from the waiting queue of a rank, and what is written down of it."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from .._arrays import Array
from ._block_parts import Parts, Rank, publish, request_of, to_completion
from ._block_pool import (
    available,
    idle_hits,
    leading_hits,
    pin_hits,
    take_blocks,
)
from ._block_queue import append, remove
from ._block_state import (
    BlockLane,
    BlockShape,
    Logs,
    Ranks,
    Records,
    Sequences,
    blocks_for,
    whole,
)
from ._radix_branch import repeat, when


Count = Int[Array, ""]


class Admitting(NamedTuple):
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
    state: Admitting,
    defer: Bool[Array, ""],
    now_ms: Float[Array, ""],
) -> Admitting:
    """Admit from the head of the queue while slots, blocks and budget allow."""
    limits, number = rank.limits, rank.number
    size = limits.block_size

    def going(state: Admitting) -> Bool[Array, ""]:
        ranks = state.parts.ranks
        some = ranks.waiting[number] >= 0
        return ~state.stop & some & (ranks.running[number] < limits.sequences)

    def look(state: Admitting) -> Admitting:
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
            if shape.drafts:
                spare = (keep > 0) & (limits.drafts > 0) & (hits > 0)
                hits = hits - spare
            idle = idle_hits(shape, lane, parts.blocks, number, row, hits)
        room = available(parts.blocks, number)
        if shape.guaranteed:
            room = room - ranks.promised[number]
        fits = demand - (hits - idle) <= room
        reuse = jnp.where(built, 0, hits * size)
        rest = length - reuse
        take = jnp.where(built, 0, jnp.minimum(rest, state.budget))
        cut = (rest > 0) & (
            (take == 0) | ((limits.chunked == 0) & (rest > state.budget))
        )
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
        return Admitting(
            budget=budget,
            admitted=state.admitted + admit,
            rejected=state.rejected + refuse,
            stop=~(admit | refuse) | (admit & (take == 0) & (budget == 0)),
            overflow=state.overflow | (able & ~refuse & ~nobody & full),
            parts=parts,
        )

    return repeat(going, look, state)


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
        reuse=records.reuse.put(request, most),
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
