"""Tabulating the hold rule over a region of questions, before a run that asks them.

Inside jitted code the rule beyond the measured grid reads cells that were filled on the
host. A region is filled cell by cell, not question by question.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from ..kernels import CELLS_PER_OCTAVE, NARROW, cell_index, decode_span
from ._batch import OpLevelBatch
from ._grid_range import inner_range
from ._surface import OpLevelSurface


def decode_surface(
    batch: OpLevelBatch, lane: int, first: int, last: Int[np.ndarray, " rows"]
) -> OpLevelSurface:
    """A surface that answers decodes of r = 1, 2, ... query rows.

    first: smallest KV length of any row; last[r - 1]: largest of r rows, below `first`
    where r rows are never asked for.
    """
    rows = np.arange(1, last.size + 1)
    batch.ensure(1, rows.size, 1)
    rows, last = rows[last >= first], last[last >= first]
    low_kv, high_kv = np.full(rows.shape, float(first)), last.astype(np.float64)
    if batch.host.averaged[lane]:
        low_kv, high_kv = decode_span(np, low_kv)[0], decode_span(np, high_kv)[1]
    low, high = inner_range(batch.host.generation, lane, rows.astype(np.float64))
    beyond = np.maximum(low_kv, high + 1), high_kv
    short = low_kv, np.minimum(high_kv, low - 1)
    outside = [
        _cells_between(rows.astype(np.float64), np.maximum(begin, 1.0), end)
        for begin, end in (beyond, short)
    ]
    outer, inner = (np.concatenate(part) for part in zip(*outside, strict=True))
    return _filled(batch, lane, 1, outer, inner)


def prefill_surface(
    batch: OpLevelBatch,
    lane: int,
    longest: Int[np.ndarray, " prompts"],
    new_tokens: int,
) -> OpLevelSurface:
    """A surface that answers prefills of n = 1, 2, ... prompts of up to longest[n - 1].

    new_tokens: most tokens computed in one pass; longest must not grow with n.
    """
    batch.ensure(new_tokens + longest.size, 1, longest.size)
    full = np.arange(1, int(longest.max(initial=1)) + 1, dtype=np.float64)
    most = longest.size - np.searchsorted(longest[::-1], full)
    most = most.astype(np.float64)
    low, high = inner_range(batch.host.context, lane, full)
    # Lengths of one cell ask for the union of their batches beyond the grid.
    cell = cell_index(np, np.log2(full)).astype(np.int64)
    starts = np.flatnonzero(np.diff(cell, prepend=-1))
    ends = np.maximum.reduceat(most, starts)
    middle = 2.0 ** ((cell[starts] + 0.5) / CELLS_PER_OCTAVE)
    above = np.minimum.reduceat(np.maximum(high + 1, 1.0), starts)
    below = np.maximum.reduceat(np.minimum(low - 1, most), starts)
    outside = [
        _cells_between(middle, begin, end)
        for begin, end in ((above, ends), (np.ones_like(below), below))
    ]
    outer, inner = (np.concatenate(part) for part in zip(*outside, strict=True))
    return _filled(batch, lane, 0, outer, inner)


def _filled(
    batch: OpLevelBatch,
    lane: int,
    phase: int,
    outer: Float[np.ndarray, " n"],
    inner: Float[np.ndarray, " n"],
) -> OpLevelSurface:
    if not outer.size or batch.pricer.analytic:
        return batch.surface(hold=False)
    batch.tabulate(phase, np.full(outer.shape, lane), outer, inner)
    found = batch.surface(hold=True)
    leaves = (
        len(leaf) for part in batch.phases for m in part.members for leaf in m.near
    )
    if max(leaves, default=0) > NARROW:
        return found
    return OpLevelSurface(found.stack, found.options._replace(near=NARROW))


def _cells_between(
    outer: Float[np.ndarray, " n"],
    begin: Float[np.ndarray, " n"],
    end: Float[np.ndarray, " n"],
) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
    """One point in every cell of the inner coordinates begin[i] to end[i]."""
    asked = begin <= end
    outer, begin, end = outer[asked], begin[asked], end[asked]
    low = cell_index(np, np.log2(begin)).astype(np.int64)
    count = cell_index(np, np.log2(end)).astype(np.int64) - low + 1
    which = np.repeat(np.arange(outer.size), count)
    offset = np.arange(which.size) - (np.cumsum(count) - count)[which]
    inner = 2.0 ** ((low[which] + offset + 0.5) / CELLS_PER_OCTAVE)
    return outer[which], inner
