"""Many deployments to one stack of arrays: token tables and attention grids.

Curves and slices are computed once per distinct operation and shared by every layout
that contains it, so compiling a further layout mostly adds arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .._errors import AisimError, MissingPerfDataError
from ..kernels._grid import GridStack
from ..kernels._steps import StepStack
from ..models._operations import Operation, OperationLists
from ._attention import AttentionTable
from ._hold_cells import cell_shape, near_leaves
from ._lowering import (
    AttentionTerm,
    Entry,
    OverlapTerm,
    Term,
    TokenTerm,
    lower,
)
from ._token_curves import TokenOperation, TokenPricer


ONE_TOKEN = np.array([1])


@dataclass(eq=False)
class CurveCache:
    """Unit curves over 0..width-1 tokens, one per distinct operation."""

    pricer: TokenPricer
    width: int
    _curves: dict[TokenOperation, np.ndarray] = field(default_factory=dict)

    def curve(self, op: TokenOperation) -> np.ndarray:
        """Unit latency at every token count below `width`, ms; entry 0 is 0."""
        key = replace(op, name="", scale=1.0)
        found = self._curves.get(key)
        if found is None:
            found = np.zeros(self.width)
            found[1:] = self.pricer.curve(op, np.arange(1, self.width))
            self._curves[key] = found
        return found


Phase = tuple[Entry, ...] | AisimError


@dataclass(frozen=True, slots=True, eq=False)
class CompiledLane:
    """One deployment: each phase lowered, or the reason why it has no price."""

    context: Phase
    generation: Phase


def compile_lanes(
    pricer: TokenPricer, builders: Sequence[Callable[[], OperationLists]]
) -> list[CompiledLane]:
    """Lower every deployment; phases that cannot be priced keep their error."""
    lanes = []
    for build in builders:
        try:
            operations = build()
        except AisimError as error:
            lanes.append(CompiledLane(error, error))
            continue
        lanes.append(
            CompiledLane(
                _lowered(pricer, operations.context),
                _lowered(pricer, operations.generation),
            )
        )
    return lanes


def _lowered(pricer: TokenPricer, operations: Sequence[Operation]) -> Phase:
    try:
        entries = lower(pricer, operations)
        for entry in entries:
            for term in entry.terms:
                _term_probe(pricer, term)
    except AisimError as error:
        return error
    return entries


def _term_probe(pricer: TokenPricer, term: Term) -> None:
    """Raise what makes a term unpriceable at any token count."""
    parts = (term,) if isinstance(term, TokenTerm) else ()
    if isinstance(term, OverlapTerm):
        parts = (*term.left, *term.right)
    for part in parts:
        pricer.curve(part.op, ONE_TOKEN)


def token_table(
    cache: CurveCache, entries: Sequence[Entry], select: Callable[[TokenTerm], bool]
) -> np.ndarray:
    """Sum of scale x curve over the selected token terms, ms at 0..width-1 tokens."""
    total = np.zeros(cache.width)
    for entry in entries:
        for term in entry.terms:
            total += _term_curve(cache, term, select)
    return total


def _term_curve(cache: CurveCache, term: Term, select) -> np.ndarray | float:
    if isinstance(term, AttentionTerm):
        return 0.0
    if isinstance(term, OverlapTerm):
        if not select(term.left[0]):
            return 0.0
        left = sum(t.op.scale * cache.curve(t.op) for t in term.left)
        right = sum(t.op.scale * cache.curve(t.op) for t in term.right)
        return np.maximum(left, right)
    if not select(term):
        return 0.0
    return term.op.scale * cache.curve(term.op)


def attention_of(entries: Sequence[Entry]) -> tuple[AttentionTerm, bool]:
    """The attention term of a phase and whether mixed steps price it apart.

    Families priced here have exactly one attention operation per phase.
    """
    found = [
        (term, entry.apart)
        for entry in entries
        for term in entry.terms
        if isinstance(term, AttentionTerm)
    ]
    if len(found) != 1:
        raise MissingPerfDataError(
            f"{len(found)} attention operations in one phase; this engine prices one"
        )
    return found[0]


def stack_lanes(
    pricer: TokenPricer,
    lanes: Sequence[CompiledLane],
    *,
    context_width: int,
    generation_width: int,
    logits_width: int,
    rows_per_request: int,
) -> StepStack:
    """NumPy arrays of all lanes; lanes without a price hold NaN token tables."""
    caches = {
        width: CurveCache(pricer, width)
        for width in {context_width, generation_width, logits_width}
    }
    count = len(lanes)
    context = np.full((count, context_width), np.nan)
    generation = np.full((count, generation_width), np.nan)
    logits = np.full((count, logits_width), np.nan)
    phases = (_PhaseArrays(count), _PhaseArrays(count))
    cp = np.ones(count)
    for i, lane in enumerate(lanes):
        if not isinstance(lane.context, AisimError):
            entries = lane.context
            context[i] = token_table(
                caches[context_width], entries, lambda t: not t.logits
            )
            logits[i] = token_table(
                caches[logits_width], entries, lambda t: t.logits
            )
            term = phases[0].take(i, entries)
            cp[i] = getattr(term.op, "cp", 1)
        if not isinstance(lane.generation, AisimError):
            entries = lane.generation
            generation[i] = token_table(
                caches[generation_width], entries, lambda t: True
            )
            phases[1].take(i, entries)
    stack = StepStack(
        context_tokens_ms=context,
        generation_tokens_ms=generation,
        logits_ms=logits,
        context=_stack_grids(phases[0].tables, phases[0].scale, True),
        generation=_stack_grids(phases[1].tables, phases[1].scale, False),
        context_apart=phases[0].apart,
        generation_apart=phases[1].apart,
        averaged=np.array([t is not None and t.averaged for t in phases[1].tables]),
        cp=cp,
        rows_per_request=np.full(count, float(rows_per_request)),
    )
    return stack


class _PhaseArrays:
    """Attention of one phase, lane by lane."""

    def __init__(self, count: int) -> None:
        self.tables: list[AttentionTable | None] = [None] * count
        self.scale = np.zeros(count)
        self.apart = np.zeros(count, bool)

    def take(self, lane: int, entries: Sequence[Entry]) -> AttentionTerm:
        term, self.apart[lane] = attention_of(entries)
        self.tables[lane] = term.table
        self.scale[lane] = term.op.scale
        return term


def _stack_grids(
    tables: Sequence[AttentionTable | None], scale: np.ndarray, is_context: bool
) -> GridStack:
    used = [t for t in tables if t is not None]
    slabs = [cut.slab for t in used for cut in t.cuts]
    outer = _union([s.outer for s in slabs])
    inner = _union([s.inner for s in slabs])
    count, coefs = len(tables), 5 if is_context else 7
    value = np.zeros((count, 2, outer.size, inner.size))
    low = np.full((count, 2, outer.size), np.inf)
    high = np.full((count, 2, outer.size), -np.inf)
    previous = np.full((count, 2, outer.size), -1, np.int32)
    following = np.full((count, 2, outer.size), outer.size, np.int32)
    cuts, blend = np.zeros(count, np.int32), np.zeros(count)
    bound = np.zeros((count, 3, coefs))
    group, leaves, cells = _hold_groups(tables, is_context)
    placed: dict[int, Any] = {}
    for i, table in enumerate(tables):
        if table is None:
            continue
        bound[i] = np.asarray(table.bound, float)
        cuts[i] = len(table.cuts)
        for c, cut in enumerate(table.cuts):
            bound[i, 1 + c] = np.asarray(cut.bound, float)
            at = placed.get(id(cut.slab))
            if at is None:
                at = placed[id(cut.slab)] = _place(cut.slab, outer, inner)
            value[i, c], low[i, c], high[i, c], previous[i, c], following[i, c] = at
        if len(table.cuts) == 2:
            a, b = table.cuts
            blend[i] = (table.heads - a.heads) / (b.heads - a.heads)
    return GridStack(
        outer=outer,
        inner=inner,
        value_ms=value,
        low=low,
        high=high,
        previous=previous,
        following=following,
        cuts=cuts,
        blend=blend,
        bound=bound,
        hold_group=group,
        hold_leaves=leaves,
        hold_cells=cells,
        scale=scale,
        extra_ms=np.array([0.0 if t is None else t.extra_ms for t in tables]),
    )


def _union(axes: Sequence[np.ndarray]) -> np.ndarray:
    keys = np.unique(np.concatenate(axes)) if axes else np.zeros(0)
    # Look-ups read pairs of neighbours, so an axis has at least two keys.
    while keys.size < 2:
        keys = np.append(keys, (keys[-1] if keys.size else 0.0) + 1.0)
    return keys


def _place(slab, outer: np.ndarray, inner: np.ndarray):
    """Spread a slab over the shared axes; holes inside a row follow the row's line."""
    rows = np.searchsorted(outer, slab.outer)
    value = np.zeros((outer.size, inner.size))
    low, high = np.full(outer.size, np.inf), np.full(outer.size, -np.inf)
    for r, row in enumerate(rows):
        low[row], high[row] = slab.low[r], slab.high[r]
        inside = (slab.inner >= low[row]) & (slab.inner <= high[row])
        cover = (inner >= low[row]) & (inner <= high[row])
        value[row, cover] = np.interp(
            inner[cover], slab.inner[inside], slab.value_ms[r, inside]
        )
    index = np.arange(outer.size)
    present = np.isin(index, rows)
    previous = np.maximum.accumulate(np.where(present, index, -1))
    following = np.minimum.accumulate(np.where(present, index, outer.size)[::-1])[::-1]
    return value, low, high, previous.astype(np.int32), following.astype(np.int32)


def _hold_groups(tables: Sequence[AttentionTable | None], is_context: bool):
    """Leaf data (squared head distance, log2 outer, log2 inner, utilisation) by group."""
    keys: dict[tuple, int] = {}
    group = np.zeros(len(tables), np.int32)
    members: list[AttentionTable] = []
    for i, table in enumerate(tables):
        if table is None:
            continue
        key = (*table.hold_key, table.leaves.util.tobytes())
        if key not in keys:
            keys[key] = len(members)
            members.append(table)
        group[i] = keys[key]
    near = [near_leaves(t.leaves, t.heads, is_context) for t in members]
    points = max([t.leaves.util.size for t in members], default=0) + 1
    width = max([n.shape[2] for n in near], default=0)
    width = max(width, 5)
    shape = cell_shape(is_context)
    groups = max(len(members), 1)
    leaves = np.zeros((groups, points, 4))
    leaves[:, :, 0], leaves[:, :, 3] = np.inf, 1.0
    cells = np.full((groups, *shape, width), points - 1, np.int32)
    for g, (table, near_g) in enumerate(zip(members, near)):
        size = table.leaves.util.size
        logs = table.leaves.logs
        leaves[g, :size, 0] = (logs[:, 0] - np.log2(table.heads)) ** 2
        leaves[g, :size, 1:3] = logs[:, 1:]
        leaves[g, :size, 3] = table.leaves.util
        padded = np.where(near_g == size, points - 1, near_g)
        cells[g, :, :, : near_g.shape[2]] = padded
    return group, leaves, cells
