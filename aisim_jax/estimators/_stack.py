"""Compiled lanes as one stack of NumPy arrays on shared, padded axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .._errors import AisimError
from ..kernels import GridStack, StepStack, segment_lines
from ._attention import AttentionTable
from ._buckets import power_of_two, whole_steps
from ._compile import CompiledLane, CurveCache, attention_of, token_sum
from ._hold_cells import HoldCells, stack_cells
from ._ragged import Slab
from ._token_curves import TokenPricer


AXIS_STEP = 8


class TableWidths(NamedTuple):
    """Token counts (exclusive) that the tables of a stack cover."""

    context: int
    generation: int
    logits: int


@dataclass(eq=False)
class PhaseAttention:
    """Attention of one phase, lane by lane, with shared hold groups."""

    is_context: bool
    tables: list[AttentionTable | None]
    scale: np.ndarray
    apart: np.ndarray
    group: np.ndarray
    members: list[HoldCells]


def phase_attention(lanes: Sequence[CompiledLane], is_context: bool) -> PhaseAttention:
    """Collect the attention slices of one phase; lanes that share one share its hold."""
    count = len(lanes)
    phase = PhaseAttention(
        is_context,
        [None] * count,
        np.zeros(count),
        np.zeros(count, bool),
        np.zeros(count, np.int32),
        [],
    )
    groups: dict[tuple, int] = {}
    for i, lane in enumerate(lanes):
        entries = lane.context if is_context else lane.generation
        if isinstance(entries, AisimError):
            continue
        term, phase.apart[i] = attention_of(entries)
        phase.tables[i], phase.scale[i] = term.table, term.op.scale
        key = (id(term.table.leaves), term.table.heads)
        if key not in groups:
            groups[key] = len(phase.members)
            phase.members.append(HoldCells(term.table))
        phase.group[i] = groups[key]
    return phase


def stack_lanes(
    pricer: TokenPricer,
    lanes: Sequence[CompiledLane],
    phases: tuple[PhaseAttention, PhaseAttention],
    widths: TableWidths,
) -> StepStack:
    """NumPy arrays of all lanes, padded to a power of two.

    Phases without a price hold NaN token tables.
    """
    count = power_of_two(len(lanes))
    context, generation, logits = (np.full((count, w), np.nan) for w in widths)
    caches = {w: CurveCache(pricer, np.arange(1, w)) for w in set(widths)}
    cp = np.ones(count)
    for i, lane in enumerate(lanes):
        if not isinstance(lane.context, AisimError):
            entries = lane.context
            context[i, 1:] = token_sum(
                caches[widths.context], entries, lambda term: not term.logits
            )
            logits[i, 1:] = token_sum(
                caches[widths.logits], entries, lambda term: term.logits
            )
            cp[i] = getattr(attention_of(entries)[0].op, "cp", 1)
        if not isinstance(lane.generation, AisimError):
            generation[i, 1:] = token_sum(
                caches[widths.generation], lane.generation, lambda term: True
            )
    averaged = [t is not None and t.averaged for t in phases[1].tables]
    return StepStack(
        context_tokens_ms=context,
        generation_tokens_ms=generation,
        logits_ms=logits,
        context=_stack_grids(phases[0], count),
        generation=_stack_grids(phases[1], count),
        context_apart=_padded(phases[0].apart, count),
        generation_apart=_padded(phases[1].apart, count),
        averaged=_padded(np.array(averaged, bool), count),
        cp=cp,
    )


def _padded(values: np.ndarray, count: int) -> np.ndarray:
    return np.concatenate([values, np.zeros(count - values.size, values.dtype)])


def _stack_grids(phase: PhaseAttention, count: int) -> GridStack:
    outer, inner, rows = _shared_rows(phase, count)
    cuts, blend = np.zeros(count, np.int32), np.zeros(count)
    bound = np.zeros((count, 3, 5 if phase.is_context else 7))
    extra = np.zeros(count)
    for i, table in enumerate(phase.tables):
        if table is None:
            continue
        cuts[i], extra[i] = len(table.cuts), table.extra_ms
        bound[i, 0] = table.bound
        for c, cut in enumerate(table.cuts):
            bound[i, 1 + c] = cut.bound
        if len(table.cuts) == 2:
            a, b = table.cuts
            blend[i] = (table.heads - a.heads) / (b.heads - a.heads)
    cells, near = stack_cells(phase.members, phase.is_context)
    return GridStack(
        outer=outer,
        inner=inner,
        line=segment_lines(np, rows.value_ms, inner, rows.low, rows.high),
        low=rows.low,
        high=rows.high,
        previous=rows.previous,
        following=rows.following,
        cuts=cuts,
        blend=blend,
        bound=bound,
        scale=_padded(phase.scale, count),
        extra_ms=extra,
        group=_padded(phase.group, count),
        cells=cells,
        near=near,
    )


class _Rows(NamedTuple):
    """Slabs spread over shared axes, [lanes, two, outer(, inner)]."""

    value_ms: np.ndarray
    low: np.ndarray
    high: np.ndarray
    previous: np.ndarray
    following: np.ndarray


def shared_values(phase: PhaseAttention, count: int) -> np.ndarray:
    """Latencies at the shared keys, ms [lanes, two, outer, inner]; 0 outside rows."""
    return _shared_rows(phase, count)[2].value_ms


def _shared_rows(
    phase: PhaseAttention, count: int
) -> tuple[np.ndarray, np.ndarray, _Rows]:
    slabs = [cut.slab for t in phase.tables if t is not None for cut in t.cuts]
    outer = _shared_axis([s.outer for s in slabs])
    inner = _shared_axis([s.inner for s in slabs])
    rows = _Rows(
        np.zeros((count, 2, outer.size, inner.size)),
        np.full((count, 2, outer.size), np.inf),
        np.full((count, 2, outer.size), -np.inf),
        np.full((count, 2, outer.size), -1, np.int32),
        np.full((count, 2, outer.size), outer.size, np.int32),
    )
    placed: dict[int, _Rows] = {}
    for i, table in enumerate(phase.tables):
        for c, cut in enumerate(() if table is None else table.cuts):
            if id(cut.slab) not in placed:
                placed[id(cut.slab)] = _place(cut.slab, outer, inner)
            for target, source in zip(rows, placed[id(cut.slab)], strict=True):
                target[i, c] = source
    return outer, inner, rows


def _shared_axis(axes: Sequence[np.ndarray]) -> np.ndarray:
    """Union of the keys, padded with inf so that stacks share compiled shapes."""
    keys = np.unique(np.concatenate(axes)) if axes else np.zeros(0)
    size = whole_steps(keys.size, AXIS_STEP)
    return np.concatenate([keys, np.full(size - keys.size, np.inf)])


def _place(slab: Slab, outer: np.ndarray, inner: np.ndarray) -> _Rows:
    """Spread a slab over the shared axes; a hole inside a row follows the row's line."""
    rows = np.searchsorted(outer, slab.outer)
    value = np.zeros((outer.size, inner.size))
    low, high = np.full(outer.size, np.inf), np.full(outer.size, -np.inf)
    for r, row in enumerate(rows):
        low[row], high[row] = slab.low[r], slab.high[r]
        own = (slab.inner >= low[row]) & (slab.inner <= high[row])
        cover = (inner >= low[row]) & (inner <= high[row])
        value[row, cover] = np.interp(
            inner[cover], slab.inner[own], slab.value_ms[r, own]
        )
    index = np.arange(outer.size)
    present = np.isin(index, rows)
    previous = np.maximum.accumulate(np.where(present, index, -1))
    following = np.minimum.accumulate(np.where(present, index, outer.size)[::-1])[::-1]
    return _Rows(
        value, low, high, previous.astype(np.int32), following.astype(np.int32)
    )
