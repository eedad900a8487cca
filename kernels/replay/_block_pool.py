"""Block pools with reference counts, a findable set and an LRU ring, block by block."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Bool, Int

from .._arrays import Array
from ._block_state import BlockLane, Blocks, BlockShape
from ._radix_branch import repeat, when


Count = Int[Array, ""]


def _sentinel(shape: BlockShape, rank: Count) -> Count:
    return shape.ranks * shape.blocks + rank


def _unlink(blocks: Blocks, block: Count, rank: Count) -> Blocks:
    """Take an idle block out of the LRU ring."""
    before, after = blocks.older[block], blocks.newer[block]
    return blocks._replace(
        newer=blocks.newer.put(before, after),
        older=blocks.older.put(after, before),
        idle=blocks.idle.add(rank, -1),
    )


def _append(shape: BlockShape, blocks: Blocks, block: Count, rank: Count) -> Blocks:
    """Make a block the most recently used idle one."""
    end = _sentinel(shape, rank)
    last = blocks.older[end]
    return blocks._replace(
        newer=blocks.newer.put(last, block).put(block, end),
        older=blocks.older.put(block, last).put(end, block),
        idle=blocks.idle.add(rank, 1),
    )


def _forget(shape: BlockShape, blocks: Blocks, block: Count, rank: Count) -> Blocks:
    """Take a block out of the findable set; the next copy of its content takes over."""
    at = rank * shape.ids + blocks.key[block]
    before, after = blocks.copy_before[block], blocks.copy_after[block]
    alone = after == block
    leads = blocks.first[at] == block
    return blocks._replace(
        first=blocks.first.put(at, jnp.where(alone, -1, after), leads),
        copy_after=blocks.copy_after.put(before, after),
        copy_before=blocks.copy_before.put(after, before),
        removed=blocks.removed.add(rank, 1, alone),
    )


def _fresh_block(
    shape: BlockShape, blocks: Blocks, rank: Count
) -> tuple[Count, Blocks]:
    """A block with one user: a free one, else the least recently used idle one."""
    any_free = blocks.free[rank] > 0
    head = blocks.free_head[rank]
    oldest = blocks.newer[_sentinel(shape, rank)]
    block = jnp.where(any_free, head, oldest)

    def take(blocks: Blocks) -> Blocks:
        following = blocks.newer[block]
        return blocks._replace(
            free=blocks.free.add(rank, -1),
            free_head=blocks.free_head.put(rank, following),
        )

    def evict(blocks: Blocks) -> Blocks:
        return _forget(shape, _unlink(blocks, block, rank), block, rank)

    blocks = when(any_free, take, blocks)
    blocks = when(~any_free, evict, blocks)
    return block, blocks._replace(
        users=blocks.users.put(block, 1), key=blocks.key.put(block, -1)
    )


def available(blocks: Blocks, rank: Count) -> Count:
    """Blocks that nobody references."""
    return blocks.free[rank] + blocks.idle[rank]


def take_blocks(
    shape: BlockShape, blocks: Blocks, rank: Count, row: Count, fresh: Count
) -> Blocks:
    """Put `fresh` new blocks at places row, row + 1, ...; there must be enough."""
    if not shape.blocks:
        return blocks._replace(free=blocks.free.add(rank, -fresh))

    def one(carry: tuple[Count, Blocks]) -> tuple[Count, Blocks]:
        at, blocks = carry
        block, blocks = _fresh_block(shape, blocks, rank)
        return at + 1, blocks._replace(held=blocks.held.put(row + at, block))

    return repeat(lambda carry: carry[0] < fresh, one, (jnp.int32(0), blocks))[1]


def release_blocks(
    shape: BlockShape, blocks: Blocks, rank: Count, row: Count, count: Count
) -> Blocks:
    """Drop one reference of the blocks at row .. row + count - 1, the last one first."""
    blocks = blocks._replace(releases=blocks.releases.add(rank, 1))
    if not shape.blocks:
        return blocks._replace(free=blocks.free.add(rank, count))

    def one(carry: tuple[Count, Blocks]) -> tuple[Count, Blocks]:
        left, blocks = carry
        block = blocks.held[row + left - 1]
        users = blocks.users[block] - 1
        blocks = blocks._replace(users=blocks.users.put(block, users))

        def drop(blocks: Blocks) -> Blocks:
            def free(blocks: Blocks) -> Blocks:
                head = blocks.free_head[rank]
                return blocks._replace(
                    newer=blocks.newer.put(block, head),
                    free_head=blocks.free_head.put(rank, block),
                    free=blocks.free.add(rank, 1),
                )

            known = blocks.key[block] >= 0
            blocks = when(~known, free, blocks)
            return when(
                known, lambda blocks: _append(shape, blocks, block, rank), blocks
            )

        return left - 1, when(users == 0, drop, blocks)

    return repeat(lambda carry: carry[0] > 0, one, (count, blocks))[1]


def publish_blocks(
    shape: BlockShape,
    lane: BlockLane,
    blocks: Blocks,
    rank: Count,
    row: Count,
    start: Count,
    end: Count,
) -> Blocks:
    """Make the blocks at places start .. end - 1 of a sequence findable."""

    def one(carry: tuple[Count, Blocks]) -> tuple[Count, Blocks]:
        at, blocks = carry
        block, key = blocks.held[row + at], lane.jobs.keys[row + at]
        place = rank * shape.ids + key
        leader = blocks.first[place]
        known = leader >= 0
        head = jnp.where(known, leader, block)
        blocks = blocks._replace(
            key=blocks.key.put(block, key),
            first=blocks.first.put(place, block, ~known),
            stored=blocks.stored.add(rank, 1, ~known),
        )
        tail = jnp.where(known, blocks.copy_before[head], block)
        return at + 1, blocks._replace(
            copy_after=blocks.copy_after.put(tail, block).put(block, head),
            copy_before=blocks.copy_before.put(head, block).put(block, tail),
        )

    return repeat(lambda carry: carry[0] < end, one, (start, blocks))[1]


def leading_hits(
    shape: BlockShape,
    lane: BlockLane,
    blocks: Blocks,
    rank: Count,
    row: Count,
    most: Count,
) -> Count:
    """Length of the longest findable run of leading blocks, up to `most`."""

    def going(carry: tuple[Count, Bool[Array, ""]]) -> Bool[Array, ""]:
        return (carry[0] < most) & carry[1]

    def one(carry: tuple[Count, Any]) -> tuple[Count, Any]:
        at, _ = carry
        known = blocks.first.values[rank * shape.ids + lane.jobs.keys[row + at]] >= 0
        return at + known.astype("int32"), known

    hits = repeat(going, one, (jnp.int32(0), jnp.bool_(True)))[0]
    blocks.first.reads.append(hits)
    return hits


def idle_hits(
    shape: BlockShape,
    lane: BlockLane,
    blocks: Blocks,
    rank: Count,
    row: Count,
    hits: Count,
) -> Count:
    """How many of the leading hits nobody references."""

    def one(carry: tuple[Count, Count]) -> tuple[Count, Count]:
        at, idle = carry
        block = blocks.first.values[rank * shape.ids + lane.jobs.keys[row + at]]
        return at + 1, idle + (blocks.users.values[block] == 0)

    start = (jnp.int32(0), jnp.int32(0))
    idle = repeat(lambda carry: carry[0] < hits, one, start)[1]
    blocks.first.reads.append(idle)
    blocks.users.reads.append(idle)
    return idle


def pin_hits(
    shape: BlockShape,
    lane: BlockLane,
    blocks: Blocks,
    rank: Count,
    row: Count,
    hits: Count,
) -> Blocks:
    """Reference the first copies of the leading hits."""

    def one(carry: tuple[Count, Blocks]) -> tuple[Count, Blocks]:
        at, blocks = carry
        block = blocks.first[rank * shape.ids + lane.jobs.keys[row + at]]
        users = blocks.users[block]
        blocks = when(users == 0, lambda blocks: _unlink(blocks, block, rank), blocks)
        return at + 1, blocks._replace(
            users=blocks.users.put(block, users + 1),
            held=blocks.held.put(row + at, block),
        )

    return repeat(lambda carry: carry[0] < hits, one, (jnp.int32(0), blocks))[1]
