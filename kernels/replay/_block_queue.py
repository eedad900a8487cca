"""Queues of the block engine: chains of jobs, and binary heaps of instants."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int

from .._arrays import Array
from ._block_cells import Cells
from ._block_state import Heap
from ._radix_branch import repeat


Count = Int[Array, ""]
Chain = tuple[Cells, Cells, Cells]  # first, last (per rank), link (per job)


def append(chain: Chain, rank: Count, job: Count) -> Chain:
    """Put a job at the end of the rank's chain."""
    first, last, link = chain
    end = last[rank]
    empty = first[rank] < 0
    return (
        first.put(rank, job, empty),
        last.put(rank, job),
        link.put(end, job, ~empty).put(job, -1),
    )


def insert(chain: Chain, rank: Count, after: Count, job: Count) -> Chain:
    """Put a job behind the job `after`, or in front of all where that is -1."""
    first, last, link = chain
    head = first[rank]
    front = after < 0
    following = jnp.where(front, head, link[after])
    return (
        first.put(rank, job, front),
        last.put(rank, job, following < 0),
        link.put(after, job, ~front).put(job, following),
    )


def remove(chain: Chain, rank: Count, before: Count, job: Count) -> Chain:
    """Take out a job whose predecessor is `before` (-1: it is the first)."""
    first, last, link = chain
    following = link[job]
    front = before < 0
    return (
        first.put(rank, following, front),
        last.put(rank, before, following < 0),
        link.put(before, following, ~front),
    )


def instant_key(at_ms: Float[Array, ""]) -> Int[Array, ""]:
    """Bits of an instant >= 0, in the same order."""
    return jax.lax.bitcast_convert_type(at_ms + 0.0, jnp.int64)


def soonest_ms(heap: Heap) -> Float[Array, ""]:
    """The least instant; inf when empty."""
    at_ms = jax.lax.bitcast_convert_type(heap.key[0], jnp.float64)
    return jnp.where(heap.size > 0, at_ms, jnp.inf)


def push(heap: Heap, at_ms: Float[Array, ""], tie: Count, item: Count) -> Heap:
    """Add an item."""
    key, tie = instant_key(at_ms), tie.astype("int64")

    def going(carry):
        at, heap = carry
        above = (at - 1) // 2
        other = heap.key[above]
        less = (key < other) | ((key == other) & (tie < heap.tie[above]))
        return (at > 0) & less

    def rise(carry):
        at, heap = carry
        above = (at - 1) // 2
        return above, heap._replace(
            key=heap.key.put(at, heap.key[above]),
            tie=heap.tie.put(at, heap.tie[above]),
            item=heap.item.put(at, heap.item[above]),
        )

    at, heap = repeat(going, rise, (heap.size, heap))
    return Heap(
        heap.key.put(at, key),
        heap.tie.put(at, tie),
        heap.item.put(at, item),
        heap.size + 1,
    )


def pop(heap: Heap) -> tuple[Count, Heap]:
    """The first item, and the heap without it; it must not be empty."""
    size = heap.size - 1
    found = heap.item[0]
    key, tie, item = heap.key[size], heap.tie[size], heap.item[size]

    def lesser_child(at, heap):
        left, right = 2 * at + 1, 2 * at + 2
        a, b = heap.key[left], heap.key[right]
        lower = heap.tie[right] < heap.tie[left]
        use = (right < size) & ((b < a) | ((b == a) & lower))
        return jnp.where(use, right, left)

    def going(carry):
        at, heap = carry
        child = lesser_child(at, heap)
        other = heap.key[child]
        less = (other < key) | ((other == key) & (heap.tie[child] < tie))
        return (2 * at + 1 < size) & less

    def sink(carry):
        at, heap = carry
        child = lesser_child(at, heap)
        return child, heap._replace(
            key=heap.key.put(at, heap.key[child]),
            tie=heap.tie.put(at, heap.tie[child]),
            item=heap.item.put(at, heap.item[child]),
        )

    at, heap = repeat(going, sink, (jnp.int32(0), heap))
    return found, Heap(
        heap.key.put(at, key), heap.tie.put(at, tie), heap.item.put(at, item), size
    )
