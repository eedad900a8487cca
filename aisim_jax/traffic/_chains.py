"""From token runs to dense ids of chained blocks, for any block size.

A sequence is a row of runs. A run is a label and a number of tokens: two sequences are
equal up to a token exactly when their labels and run lengths are equal before the run
that holds it, and its label and place in the run are equal too. So the identity of a
block is that of its last token: (chained identity of the run, place in the run).
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from ._contents import BlockKeys


_CHUNK_BLOCKS = 1 << 22


class Runs(NamedTuple):
    """Sequences of token runs; sequence s is runs start[s] : start[s + 1].

    label: 0 .. runs - 1, equal labels = equal tokens place by place. tokens: >= 0.
    """

    label: Int[np.ndarray, " runs"]
    tokens: Int[np.ndarray, " runs"]
    start: Int[np.ndarray, " seqs_and_one"]


def sequence_keys(runs: Runs, block_size: int) -> BlockKeys:
    """Ids of all full blocks of every sequence."""
    begin, end = _bounds(runs)
    node = _chained(runs, begin)
    skipped = begin // block_size
    counts = end // block_size - skipped
    most = np.zeros(int(node.max(initial=-1)) + 1, np.int64)
    np.maximum.at(most, node, counts)
    base = np.cumsum(most) - most
    distinct = int(most.sum())
    stop = np.concatenate([[0], np.cumsum(counts)])
    ids = np.empty(
        int(stop[-1]), np.int32 if distinct <= np.iinfo(np.int32).max else np.int64
    )
    # In slices, so that 64-bit intermediates never span all blocks.
    cuts = np.searchsorted(stop, np.arange(0, max(ids.size, 1), _CHUNK_BLOCKS))
    for low, high in pairwise([*cuts.tolist(), counts.size]):
        held = counts[low:high]
        shift = np.repeat(base[node[low:high]] - stop[low:high], held)
        filled = slice(int(stop[low]), int(stop[high]))
        ids[filled] = shift + np.arange(filled.start, filled.stop)
    return BlockKeys(ids, stop[runs.start], distinct)


def prefix_keys(
    keys: BlockKeys,
    sequence: Int[np.ndarray, " reqs"],
    blocks: Int[np.ndarray, " reqs"],
) -> BlockKeys:
    """The first `blocks` ids of a sequence for every request."""
    start = np.concatenate([[0], np.cumsum(blocks)])
    within = np.arange(start[-1]) - np.repeat(start[:-1], blocks)
    ids = keys.ids[np.repeat(keys.start[sequence], blocks) + within]
    return BlockKeys(ids, start, keys.distinct)


def dense_labels(values: np.ndarray) -> Int[np.ndarray, " values"]:
    """Small integers that are equal where the unsigned 64-bit values are."""
    top = int(values.max(initial=0))
    if top > 4 * values.size + 1024:
        values = np.unique(values, return_inverse=True)[1]
        top = int(values.max(initial=0))
    return values.astype(np.int32 if top <= np.iinfo(np.int32).max else np.int64)


def _bounds(
    runs: Runs,
) -> tuple[Int[np.ndarray, " runs"], Int[np.ndarray, " runs"]]:
    """First and one-past-last token of every run inside its sequence."""
    total = np.concatenate([[0], np.cumsum(runs.tokens, dtype=np.int64)])
    offset = np.repeat(total[runs.start[:-1]], np.diff(runs.start))
    return total[:-1] - offset, total[1:] - offset


def _chained(runs: Runs, begin: Int[np.ndarray, " runs"]) -> Int[np.ndarray, " runs"]:
    """Dense identity of every run together with all runs before it."""
    label = runs.label
    if not label.size:
        return label
    previous = np.empty_like(label)
    previous[1:] = label[:-1]
    filled = np.diff(runs.start) > 0
    previous[runs.start[:-1][filled]] = -1
    # Traces commonly number chained blocks already: one predecessor, one place a label.
    size = int(label.max()) + 1
    known = np.full(size, -1, label.dtype)
    known[label] = previous
    place = np.zeros(size, np.int64)
    place[label] = begin
    if np.array_equal(known[label], previous) and np.array_equal(place[label], begin):
        return label
    placed = np.unique(
        label.astype(np.int64) * (begin.max() + 1) + begin, return_inverse=True
    )[1]
    return _chained_by_depth(placed, runs.start)


def _chained_by_depth(
    label: Int[np.ndarray, " runs"], start: Int[np.ndarray, " seqs_and_one"]
) -> Int[np.ndarray, " runs"]:
    """Chain run by run: identity = (identity of the run before, own label)."""
    length = np.diff(start)
    by_length = np.argsort(-length, kind="stable")
    first = start[:-1][by_length]
    alive = np.searchsorted(-length[by_length], -np.arange(length.max()))
    labels = int(label.max()) + 1
    node = np.empty(label.size, np.int64)
    nodes, parent = 0, np.zeros(first.size, np.int64)
    for depth, living in enumerate(alive):
        at = first[:living] + depth
        pairs = parent[:living] * labels + label[at]
        distinct, inverse = np.unique(pairs, return_inverse=True)
        parent = nodes + inverse
        node[at] = parent
        # Parents are numbered from 0 at every depth, so that pairs stay small.
        parent, nodes = inverse, nodes + distinct.size
    return node
