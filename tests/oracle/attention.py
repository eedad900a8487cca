"""Prices of attention operations, one layer, ms."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from oracle.interpolation import Grid, Miss, tree_of
from oracle.roofline import BYTES, MS, Call, Roofline


class Attention(Roofline):
    """Grouped-query and latent attention."""

    def __init__(self, tables: Any, *, analytic: bool = False) -> None:
        super().__init__(tables, analytic=analytic)
        self.grids = cache(self._grid)

    def _ContextAttention(self, op: Any, call: Call) -> float:
        n, kv, h = op.heads, op.kv_heads, op.head_dim
        unit = self.zigzag(op, call, self._context_attention)
        extra = 2 * self.memop(kv * h * BYTES[op.fmha_quant])
        if op.rope:
            extra += 2 * self.memop(2 * n * h + 2 * kv * h)
        return unit + 1.1 * (extra + self.norms(op))

    def norms(self, op: Any) -> float:
        """Query and key norms beside attention."""
        n, kv, h = op.heads, op.kv_heads, op.head_dim
        once = 2 * self.memop(2 * n * h) + 2 * self.memop(2 * kv * h)
        return 2 * once if op.qk_norm else 0.0

    def zigzag(self, op: Any, call: Call, table: Any) -> float:
        """Context parallelism prices one early and one late chunk."""
        if getattr(op, "cp", 1) <= 1:
            return table(op, call.b, call.s, call.prefix)
        chunk = max(1, -(-call.s // (2 * op.cp)))
        first = table(op, call.b, chunk, call.prefix)
        return first + table(op, call.b, chunk, call.prefix + call.s - chunk)

    def _context_attention(self, op: Any, b: int, s: int, prefix: int) -> float:
        if self.analytic:
            return self.context_sol(op, op.heads, b, s, prefix)
        return self.grids(op).at(op.heads, s + prefix, b) * _uncached(s, prefix)

    def context_sol(self, op: Any, n: int, b: int, s: int, prefix: int) -> float:
        h, full, w = op.head_dim, s + prefix, op.window
        kv = n if op.kv_heads == op.heads else op.kv_heads
        ops = 2 * b * (full**2 - prefix**2) * n * h * 2 / 2
        if w > 0 and full > w:
            ops = 2 * b * full * w * n * h * 2
        moved = 2 * b * 2 * n * s * h + BYTES[op.kv_quant] * b * 2 * kv * full * h
        return self.bound(ops, self.flops(op.fmha_quant), moved)

    def _GenerationAttention(self, op: Any, call: Call) -> float:
        if self.analytic:
            unit = self.generation_sol(op, op.heads, call.b, call.kv_len)
        else:
            first = max(1, int(0.9 * call.kv_len))
            last = max(first, int(1.1 * call.kv_len))
            lengths = [first + (last - first) * i // 4 for i in range(5)]
            grid = self.grids(op)
            unit = sum(grid.at(op.heads, call.b, length) for length in lengths) / 5
        return unit + 1.1 * self.norms(op)

    def generation_sol(self, op: Any, n: int, b: int, kv_len: int) -> float:
        h, w = op.head_dim, op.window
        kv = n if op.kv_heads == op.heads else op.kv_heads
        length = min(kv_len - 1, w) if w > 0 else kv_len - 1
        moved = b * (2 * n * h + 2 * kv * length * h * BYTES[op.kv_quant] + 2 * n * h)
        rate = self.decode_flops(op.kv_quant)
        return self.bound(b * n * h * 2 * 2 * length, rate, moved)

    def _grid(self, op: Any) -> Grid:
        """The slice that serves an attention operation, with its own bound."""
        kind, tables = type(op).__name__, self.tables
        if kind == "ContextAttention":
            wanted = (op.fmha_quant, *self.slice_of(op))
            grid = first_lane(tables.context_attention(), op.lanes, wanted)
            return Grid(
                tree_of(grid.axes, grid.latency_ms),
                lambda n, full, b: self.context_sol(op, n, b, full, 0),
                root_axis=1,
            )
        if kind == "GenerationAttention":
            wanted = ("", *self.slice_of(op))
            grid = first_lane(tables.generation_attention(), op.lanes, wanted)
            tree = tree_of(grid.axes, grid.latency_ms)
            for n, by_batch in tree.items():
                for b, curve in by_batch.items():
                    for length in curve:
                        least = self.generation_sol(op, n, b, length)
                        curve[length] = max(curve[length], least)
            return Grid(
                tree, lambda n, b, at: self.generation_sol(op, n, b, at), root_axis=None
            )
        context = kind == "ContextMla" or (kind == "MlaModule" and op.is_context)
        suffix = "_module" if kind == "MlaModule" else ""
        pool = getattr(
            tables, ("context" if context else "generation") + "_mla" + suffix
        )
        grid = self.mla_slice(op, pool(), op.fmha_quant if context else "")
        tree = tree_of(grid.axes, grid.latency_ms)
        if context:
            return Grid(
                tree, lambda n, full, b: self.mla_context_sol(op, n, b, full, 0), 1
            )
        return Grid(tree, lambda n, b, at: self.mla_generation_sol(op, n, b, at), None)

    def slice_of(self, op: Any) -> tuple:
        kv = 0 if op.heads == op.kv_heads else op.kv_heads
        return op.kv_quant, kv, op.head_dim, op.window

    def mla_slice(self, op: Any, pool: Any, fmha: str) -> Any:
        gemm = getattr(op, "gemm_quant", "")
        same = {
            key.native_heads: grid
            for key, grid in pool.items()
            if (key.fmha, key.kv, key.gemm) == (fmha, op.kv_quant, gemm)
        }
        if not same:
            raise Miss
        native = getattr(op, "native_heads", 0)
        below = [heads for heads in same if heads <= native]
        if native in same:
            return same[native]
        return same[max(below) if below else min(same)]

    def _ContextMla(self, op: Any, call: Call) -> float:
        return self.zigzag(op, call, self._context_mla)

    def _context_mla(self, op: Any, b: int, s: int, prefix: int) -> float:
        if self.analytic:
            return self.mla_context_sol(op, op.heads, b, s, prefix)
        return self.grids(op).at(op.heads, s + prefix, b) * _uncached(s, prefix)

    def mla_context_sol(self, op: Any, n: int, b: int, s: int, prefix: int) -> float:
        full = s + prefix
        ops = b * n * 320 * (full**2 - prefix**2)
        moved = b * n * (BYTES[op.kv_quant] * full * 320 + 2 * s * 320)
        return self.bound(ops, self.flops(op.fmha_quant), moved)

    def _GenerationMla(self, op: Any, call: Call) -> float:
        if self.analytic:
            return self.mla_generation_sol(op, op.heads, call.b, call.kv_len)
        return self.grids(op).at(op.heads, call.b, call.kv_len)

    def mla_generation_sol(self, op: Any, n: int, b: int, kv_len: int) -> float:
        seconds = 2 * b * n * 1088 * kv_len / self.decode_flops(op.kv_quant)
        moved = b * (n * 1088 * 2 + (kv_len - 1) * 576 * BYTES[op.kv_quant])
        if type(op).__name__ == "MlaModule":
            seconds += 2 * 2 * b * n * 128 * 512 / self.flops(op.gemm_quant)
            moved += 2 * n * (640 * b + 65536) * BYTES[op.gemm_quant]
        return max(seconds, moved / self.bandwidth) * MS

    def _MlaModule(self, op: Any, call: Call) -> float:
        if op.is_context:
            return self._context_mla(op, call.b, call.s, call.prefix)
        return self._GenerationMla(op, call)


def _uncached(s: int, prefix: int) -> float:
    """Share of the attention square that is new work."""
    full = s + prefix
    return (full**2 - prefix**2) / full**2


def first_lane(pool: Any, lanes: Sequence[str], wanted: tuple) -> Any:
    """The first lane that holds a slice serves the whole query."""
    order = [lane for lane in lanes if lane in pool]
    for lane in [*order, *(lane for lane in pool if lane not in order)]:
        for key, grid in pool[lane].items():
            have = (key.fmha, key.kv, key.kv_heads, key.head_dim, key.window)
            if have == wanted:
                return grid
    raise Miss
