"""What a pass of one rank works on, and a job's blocks."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Int

from .._arrays import Array
from ._block_cells import Cells
from ._block_pool import publish_blocks, release_blocks, take_blocks
from ._block_queue import insert
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
from ._radix_branch import repeat, when


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


def preempt(
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
