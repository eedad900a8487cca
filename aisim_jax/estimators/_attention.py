"""Attention of one operation, prepared from its measured slice, and its scalar price.

`prepare_attention` picks the slice (lane and keys), cuts it at the operation's head
count and gathers the coefficients of its speed of light. `AttentionTable.price` is the
plain scalar path; `stack` in the surface module feeds the same arrays to the batched
kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from .._errors import MissingPerfDataError
from ..kernels import (
    context_sol_ms,
    context_spans,
    decode_lengths,
    generation_sol_ms,
    grid_sol_ms,
)
from ..models import (
    ContextAttention,
    ContextMla,
    GenerationAttention,
    GenerationMla,
    MlaModule,
)
from ..systems import (
    AttentionKey,
    AttentionTables,
    MlaKey,
    PerfTables,
    RaggedGrid,
    SystemSpec,
)
from ._hold import Leaves, grid_leaves, held_utilisation
from ._plain import PLAIN
from ._ragged import Slab, cut_slab
from ._speed_of_light import (
    MS,
    ContextBound,
    GenerationBound,
    context_bound,
    generation_bound,
    memory_op_ms,
    quant_mode,
)
from ._token_curves import worst_origin


AttentionOperation = (
    ContextAttention | GenerationAttention | ContextMla | GenerationMla | MlaModule
)
EXTRA_FACTOR = 1.1


@dataclass(frozen=True, slots=True, eq=False)
class HeadCut:
    """The slice at one measured head count."""

    heads: int
    slab: Slab
    bound: ContextBound | GenerationBound


@dataclass(frozen=True, eq=False)
class AttentionTable:
    """Everything needed to price one attention operation (unit latency, ms).

    Outer and inner coordinates: context (full sequence, batch) with a square-root outer
    axis; generation (batch, KV length). `cuts` holds one head count (measured exactly),
    two (the query lies between) or none (outside the measured head counts).
    """

    op: AttentionOperation
    is_context: bool
    averaged: bool
    heads: int
    bound: ContextBound | GenerationBound
    cuts: tuple[HeadCut, ...]
    leaves: Leaves
    extra_ms: float
    lane: str
    analytic: bool = False

    def sol_ms(self, bound, outer: float, inner: float) -> float:
        """Speed of light at grid coordinates (prefix 0)."""
        return float(grid_sol_ms(np, self.is_context, bound, outer, inner))

    def grid_ms(self, outer: float, inner: float) -> tuple[float, str]:
        """Grid value at (outer, inner) and how it was obtained."""
        values = [(cut, _slab_ms(self, cut, outer, inner)) for cut in self.cuts]
        found = [(cut, value) for cut, value in values if value is not None]
        if len(self.cuts) == 1 and found:
            return found[0][1]
        if len(found) == 2:
            low, high = found[0][0], found[1][0]
            share = (self.heads - low.heads) / (high.heads - low.heads)
            (a, _), (b, _) = found[0][1], found[1][1]
            return a + share * (b - a), "interpolated"
        if len(found) == 1:
            cut, (value, _) = found[0]
            moved = self.sol_ms(cut.bound, outer, inner)
            query = self.sol_ms(self.bound, outer, inner)
            if moved > 0 and query > 0:
                value *= query / moved
            return value, "extrapolated"
        util = held_utilisation(self.leaves, (self.heads, outer, inner))
        return self.sol_ms(self.bound, outer, inner) / util, "extrapolated"

    def context_ms(self, batch: float, new: float, prefix: float) -> tuple[float, str]:
        """Prefill of `batch` requests, `new` tokens each after `prefix` cached ones."""
        cp = getattr(self.op, "cp", 1)
        if cp > 1:
            spans = context_spans(PLAIN, new, prefix, cp)
            (first, how), (last, how_last) = (
                self._prefix_ms(batch, *span) for span in spans
            )
            return first + last + self.extra_ms, worst_origin(how, how_last)
        value, how = self._prefix_ms(batch, new, prefix)
        return value + self.extra_ms, how

    def _prefix_ms(self, batch: float, new: float, prefix: float):
        if self.analytic:
            sol = context_sol_ms(np, self.bound, batch, new, prefix)
            return float(sol), "analytic"
        full = new + prefix
        value, how = self.grid_ms(full, batch)
        if prefix > 0:  # a share of the table's value, even at one of its points
            how = worst_origin(how, "interpolated")
        return value * (full * full - prefix * prefix) / (full * full), how

    def generation_ms(self, batch: float, kv_len: float) -> tuple[float, str]:
        """One decode step of `batch` rows at KV length `kv_len`."""
        if self.analytic:
            sol = generation_sol_ms(np, self.bound, batch, kv_len)
            return float(sol) + self.extra_ms, "analytic"
        if not self.averaged:
            value, how = self.grid_ms(batch, kv_len)
            return value + self.extra_ms, how
        total, worst = 0.0, "measured"
        for length in decode_lengths(PLAIN, kv_len):
            value, how = self.grid_ms(batch, length)
            total += value
            worst = worst_origin(worst, how)
        return total / 5 + self.extra_ms, worst


def _slab_ms(
    table: AttentionTable, cut: HeadCut, outer: float, inner: float
) -> tuple[float, str] | None:
    slab = cut.slab
    keys = slab.outer
    at = int(np.searchsorted(keys, outer))
    if at < keys.size and keys[at] == outer:
        return _row_ms(slab, at, inner)
    if at == 0 or at == keys.size:
        return None
    low, high = _row_ms(slab, at - 1, inner), _row_ms(slab, at, inner)
    if low is not None and high is not None:
        share = (outer - keys[at - 1]) / (keys[at] - keys[at - 1])
        a, b = low[0], high[0]
        if table.is_context:
            root = a**0.5 + share * (b**0.5 - a**0.5)
            return root * root, "interpolated"
        return a + share * (b - a), "interpolated"
    survivor = low if low is not None else high
    if survivor is None:
        return None
    key = keys[at - 1] if low is not None else keys[at]
    query = table.sol_ms(table.bound, outer, inner)
    moved = table.sol_ms(table.bound, float(key), inner)
    value = survivor[0]
    if query > 0 and moved > 0:
        value *= query / moved
    return value, "extrapolated"


def _row_ms(slab: Slab, row: int, inner: float) -> tuple[float, str] | None:
    if not slab.low[row] <= inner <= slab.high[row]:
        return None
    axis = slab.inner
    at = int(np.searchsorted(axis, inner))
    if axis[at] == inner:
        return float(slab.value_ms[row, at]), "measured"
    share = (inner - axis[at - 1]) / (axis[at] - axis[at - 1])
    a, b = slab.value_ms[row, at - 1], slab.value_ms[row, at]
    return float(a + share * (b - a)), "interpolated"


def prepare_attention(
    tables: PerfTables, op: AttentionOperation, *, analytic: bool = False
) -> AttentionTable:
    """Select, cut and bound the slice that serves `op`.

    `analytic` skips the tables: every price is the speed of light. Raises
    MissingPerfDataError when no lane holds the slice.
    """
    if analytic:
        return _analytic(tables, op)
    match op:
        case ContextAttention():
            key = AttentionKey(
                op.fmha_quant, op.kv_quant, _mha_key(op), op.head_dim, op.window
            )
            lane, grid = _first_lane(tables, tables.context_attention(), op, key)
        case GenerationAttention():
            key = AttentionKey("", op.kv_quant, _mha_key(op), op.head_dim, op.window)
            lane, grid = _first_lane(tables, tables.generation_attention(), op, key)
        case ContextMla():
            key = MlaKey(op.fmha_quant, op.kv_quant)
            lane, grid = "mla", _mla_grid(tables, tables.context_mla(), key)
        case GenerationMla():
            key = MlaKey("", op.kv_quant)
            lane, grid = "mla", _mla_grid(tables, tables.generation_mla(), key)
        case MlaModule():
            lane, grid = "mla_module", _module_grid(tables, op)
    return _cut(tables, op, lane, grid)


def is_context_attention(op: AttentionOperation) -> bool:
    """Whether the operation belongs to prefill."""
    if isinstance(op, MlaModule):
        return op.is_context
    return isinstance(op, ContextAttention | ContextMla)


def bound_maker(is_context: bool) -> Callable[..., ContextBound | GenerationBound]:
    """The function (system, operation, heads) -> speed-of-light coefficients."""
    return context_bound if is_context else generation_bound


def _analytic(tables: PerfTables, op: AttentionOperation) -> AttentionTable:
    is_context = is_context_attention(op)
    make = bound_maker(is_context)
    return AttentionTable(
        op=op,
        is_context=is_context,
        averaged=False,
        heads=op.heads,
        bound=make(tables.spec, op, op.heads),
        cuts=(),
        leaves=Leaves(np.zeros((0, 3)), np.zeros(0)),
        extra_ms=attention_extra_ms(tables.spec, op, analytic=True),
        lane="analytic",
        analytic=True,
    )


def _cut(
    tables: PerfTables, op: AttentionOperation, lane: str, grid: RaggedGrid
) -> AttentionTable:
    spec = tables.spec
    is_context = is_context_attention(op)
    make = bound_maker(is_context)
    heads_axis, outer, inner = (np.asarray(axis, np.float64) for axis in grid.axes)
    bounds = [make(spec, op, int(h)) for h in heads_axis]
    sol = np.stack(
        [grid_sol_ms(np, is_context, b, outer[:, None], inner[None, :]) for b in bounds]
    )
    latency = grid.latency_ms
    if isinstance(op, GenerationAttention):
        latency = np.maximum(latency, sol)  # NaN stays NaN
    present = np.flatnonzero(~np.isnan(latency).all(axis=(1, 2)))
    keys = heads_axis[present]
    at = int(np.searchsorted(keys, op.heads))
    if at < keys.size and keys[at] == op.heads:
        chosen = [present[at]]
    elif at == 0 or at == keys.size:
        chosen = []
    else:
        chosen = [present[at - 1], present[at]]
    return AttentionTable(
        op=op,
        is_context=is_context,
        averaged=isinstance(op, GenerationAttention),
        heads=op.heads,
        bound=make(spec, op, op.heads),
        cuts=tuple(
            HeadCut(int(heads_axis[i]), cut_slab(outer, inner, latency[i]), bounds[i])
            for i in chosen
        ),
        leaves=grid_leaves(grid, latency, sol),
        extra_ms=attention_extra_ms(spec, op, analytic=False),
        lane=lane,
    )


def attention_extra_ms(
    spec: SystemSpec, op: AttentionOperation, *, analytic: bool
) -> float:
    """Norm, rotary and KV-write kernels beside attention: a constant per layer, ms."""

    def pass_ms(moved_bytes: float) -> float:
        if analytic:
            return moved_bytes / spec.mem_bw_bytes_per_s * MS
        return float(memory_op_ms(spec, moved_bytes))

    if isinstance(op, ContextAttention | GenerationAttention):
        dim, heads, kv = op.head_dim, op.heads, op.kv_heads
        norm = 2.0 * (2 * pass_ms(2 * heads * dim) + 2 * pass_ms(2 * kv * dim))
        extra = norm if op.qk_norm else 0.0
        if isinstance(op, GenerationAttention):
            return EXTRA_FACTOR * extra
        if op.rope:
            extra += 2.0 * pass_ms(2 * heads * dim + 2 * kv * dim)
        width = quant_mode(op.fmha_quant).bytes
        return EXTRA_FACTOR * (extra + 2.0 * pass_ms(kv * dim * width))
    return 0.0


def _mha_key(op: ContextAttention | GenerationAttention) -> int:
    return 0 if op.heads == op.kv_heads else op.kv_heads


def _first_lane(
    tables: PerfTables,
    pool: AttentionTables,
    op: ContextAttention | GenerationAttention,
    key: AttentionKey,
) -> tuple[str, RaggedGrid]:
    listed = [lane for lane in op.lanes if lane in pool]
    for lane in [*listed, *(lane for lane in pool if lane not in listed)]:
        grid = pool[lane].get(key)
        if grid is not None:
            return lane, grid
    nearest = sorted(
        {
            f"{k.fmha or '-'}/{k.kv} kv heads {k.kv_heads} dim {k.head_dim} "
            f"window {k.window}"
            for slices in pool.values()
            for k in slices
            if k.head_dim == key.head_dim and k.kv_heads == key.kv_heads
        }
    )
    phase = "prefill" if key.fmha else "decode"
    raise MissingPerfDataError(
        f"no measured {phase} attention for precision {key.fmha or '-'}, KV {key.kv}, "
        f"kv heads {key.kv_heads or 'equal to heads'}, head dim {key.head_dim}, window "
        f"{key.window} on {tables.spec.name} {tables.backend} {tables.version}; nearest: "
        f"{'; '.join(nearest[:4]) or 'none with this head dim and KV head count'}"
    )


def _mla_grid(
    tables: PerfTables,
    pool: Mapping[MlaKey, RaggedGrid],
    key: MlaKey,
) -> RaggedGrid:
    grid = pool.get(key)
    if grid is None:
        have = sorted({f"{k.fmha or '-'}/{k.kv}" for k in pool})
        raise MissingPerfDataError(
            f"no measured MLA kernel for precision {key.fmha or '-'} with KV {key.kv} on "
            f"{tables.spec.name} {tables.backend} {tables.version}; measured: "
            f"{', '.join(have) or 'none'}"
        )
    return grid


def _module_grid(tables: PerfTables, op: MlaModule) -> RaggedGrid:
    pool = (
        tables.context_mla_module() if op.is_context else tables.generation_mla_module()
    )
    fmha = op.fmha_quant if op.is_context else ""
    same = {
        k.native_heads: grid
        for k, grid in pool.items()
        if (k.fmha, k.kv, k.gemm) == (fmha, op.kv_quant, op.gemm_quant)
    }
    if not same:
        have = sorted({f"{k.fmha or '-'}/{k.kv}/{k.gemm}" for k in pool})
        raise MissingPerfDataError(
            f"no measured MLA block for precision {fmha or '-'}, KV {op.kv_quant}, GEMM "
            f"{op.gemm_quant} on {tables.spec.name} {tables.backend} {tables.version}; "
            f"measured: {', '.join(have) or 'none'}"
        )
    if op.native_heads in same:
        return same[op.native_heads]
    below = [heads for heads in same if heads <= op.native_heads]
    return same[max(below) if below else min(same)]
