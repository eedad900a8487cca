"""Blocks of draft tokens: room before they are tried, given back where none was accepted."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Bool, Int

from .._arrays import Array
from ._block_parts import Parts, Rank, grow, preempt, request_of
from ._block_pool import available, release_blocks
from ._block_state import BlockLane, BlockShape, Sequences, blocks_for
from ._radix_branch import repeat, when


Count = Int[Array, ""]


def from_prefill(
    lane: BlockLane, shape: BlockShape, seqs: Sequences, job: Count
) -> Bool[Array, ""]:
    """Whether a token comes from a prefill or a recomputation: no drafts then."""
    silent = seqs.length[job] == lane.traffic.isl[request_of(shape, job)]
    return (silent & (seqs.built[job] == 0)) | (seqs.taken[job] > 1)


def trim(
    lane: BlockLane, shape: BlockShape, rank: Rank, parts: Parts, job: Count
) -> Parts:
    """Give back the blocks that no draft has filled."""
    blocks, seqs, ranks = parts.blocks, parts.seqs, parts.ranks
    held = seqs.blocks[job]
    keep = jnp.minimum(blocks_for(seqs.length[job], rank.limits.block_size), held)
    row = lane.jobs.first_row[job] + keep
    if shape.guaranteed:
        ranks = ranks._replace(promised=ranks.promised.add(rank.number, held - keep))
    return parts._replace(
        blocks=release_blocks(shape, blocks, rank.number, row, held - keep),
        seqs=seqs._replace(blocks=seqs.blocks.put(job, keep)),
        ranks=ranks,
    )


def make_room_for_drafts(
    lane: BlockLane, shape: BlockShape, rank: Rank, parts: Parts
) -> tuple[Parts, Count]:
    """Blocks for every token that this pass may emit; how many were preempted for it.

    The last ones give way. Who is preempted here has computed in vain.
    """
    number, limits = rank.number, rank.limits
    first = number * shape.slots

    def one(carry: Any) -> Any:
        at, lost, parts = carry
        seqs = parts.seqs
        job = parts.ranks.slots[first + at]
        length = seqs.length[job]
        left = lane.jobs.target[job] - length
        ready = (length == seqs.computed[job]) & (left > 0)
        most = jnp.where(from_prefill(lane, shape, seqs, job), 1, 1 + limits.drafts)
        covered = length + jnp.minimum(most, left)
        need = blocks_for(covered, limits.block_size) - seqs.blocks[job]
        need = jnp.where(ready, jnp.maximum(need, 0), 0)

        def short(carry: Any) -> Any:
            _, gone, parts = carry
            return ~gone & (available(parts.blocks, number) < need)

        def make(carry: Any) -> Any:
            lost, _, parts = carry
            last = parts.ranks.running[number] - 1
            parts = preempt(lane, shape, rank, parts, last)
            return lost + 1, last == at, parts

        lost, gone, parts = repeat(short, make, (lost, jnp.bool_(False), parts))
        parts = when(
            ~gone & (need > 0),
            lambda parts: grow(lane, shape, rank, parts, job, need),
            parts,
        )
        return at + 1, lost, parts

    def going(carry: Any) -> Any:
        at, _, parts = carry
        return (limits.drafts > 0) & (at < parts.ranks.running[number])

    start = (jnp.int32(0), jnp.int32(0), parts)
    _, lost, parts = repeat(going, one, start)
    return parts, lost
