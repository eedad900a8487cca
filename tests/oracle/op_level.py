"""The operation-level model as plain Python: one operation, one query at a time.

Reads measured rows through the package's table records; every formula is spelled out
again, operation by operation. Times are ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from oracle.attention import Attention
from oracle.collectives import Collectives
from oracle.interpolation import GemmTable, Miss, clamped, on_curve, tree_of
from oracle.roofline import BYTES, Call


class Oracle(Attention, Collectives):
    """Prices of one system x engine; `analytic` is database mode SOL."""

    def __init__(self, tables: Any, *, analytic: bool = False) -> None:
        super().__init__(tables, analytic=analytic)
        self.gemms = cache(self._gemm_table)
        self.quantize = cache(self._quantize)

    # Steps.

    def prefill(self, ops: Sequence[Any], b: int, isl: int, prefix: int) -> list[float]:
        """Each operation of a prefill of b requests of isl tokens, `prefix` cached."""
        s = isl - prefix
        call = Call(b * s, b, s, prefix)
        return [self.price(op, _for_logits(op, call)) for op in ops]

    def decode(self, ops: Sequence[Any], rows: int, kv_len: int) -> list[float]:
        """Each operation of one decode step of `rows` rows."""
        return [self.price(op, Call(rows, rows, kv_len=kv_len)) for op in ops]

    def mixed(self, lists: Any, c: int, g: int, isl: int, osl: int, prefix: int):
        """The three parts of a step of c prefill tokens and g decode rows."""
        held = prefix * (c // isl)
        part1 = self.as_one_sequence(lists.context, c + g - held, held)
        part2 = part3 = 0.0
        if c > 0:
            call = Call(1, -(-c // isl), isl - prefix, prefix)
            part2 = self.apart(lists.context, call) / -(-isl // c)
        if g > 0:
            part3 = self.apart(lists.generation, Call(1, g, kv_len=isl + osl // 2 + 1))
        return part1, part2, part3

    def scheduled(self, lists: Any, n: int, t: int, k: int, nd: int, kd: int) -> float:
        """One rank's pass from its five sums."""
        if t > 0 and (nd > 0 or kd > 0):
            n = max(n, 1)
            new = max(t // n, 1)
            part1 = self.as_one_sequence(lists.context, t + nd, k)
            call = Call(1, max(-(-t // new), 1), new, k // n)
            part2 = self.apart(lists.context, call) / max(-(-new // t), 1)
            rows = max(nd, 1)
            call = Call(1, rows, kv_len=max(kd // rows, 1))
            return part1 + part2 + self.apart(lists.generation, call)
        if t > 0:
            n = max(n, 1)
            return sum(self.prefill(lists.context, n, t // n + k // n, k // n))
        if nd > 0 or kd > 0:
            rows = max(nd, 1)
            return sum(self.decode(lists.generation, rows, kd // rows))
        return 0.0

    def as_one_sequence(self, ops: Sequence[Any], s: int, prefix: int) -> float:
        """Everything but attention named at the top level, as one request."""
        call = Call(s, 1, s, prefix)
        rest = [op for op in ops if op.name != "context_attention"]
        return sum(self.price(op, _for_logits(op, call)) for op in rest)

    def apart(self, ops: Sequence[Any], call: Call) -> float:
        """The attention operations named at the top level."""
        names = ("context_attention", "generation_attention")
        return sum(self.price(op, call) for op in ops if op.name in names)

    # Operations.

    def price(self, op: Any, call: Call) -> float:
        """Latency over all layers. Raises Miss where nothing was measured."""
        kind = type(op).__name__
        if kind == "Fallback":
            try:
                return self.price(op.primary, call)
            except Miss:
                return sum(self.price(part, call) for part in op.alternative)
        if kind == "Overlap":
            left = sum(self.price(part, call) for part in op.left)
            return max(left, sum(self.price(part, call) for part in op.right))
        split = getattr(op, "seq_split", 1)
        call = call._replace(x=-(-call.x // split))
        return op.scale * max(getattr(self, f"_{kind}")(op, call), 0.0)

    def _Embedding(self, op: Any, call: Call) -> float:
        return self.memop(call.x * op.hidden * 2)

    def _Elementwise(self, op: Any, call: Call) -> float:
        return self.memop(call.x * op.bytes_per_token)

    def gemm_sol(self, mode: str, m: int, n: int, k: int) -> float:
        moved = BYTES[mode] * (m * n + m * k + n * k)
        return self.bound(2 * m * n * k, self.flops(mode), moved)

    def _gemm_table(self, mode: str) -> GemmTable:
        table = self.tables.gemm(mode)
        if table is None:
            raise Miss
        sites = {}
        for n, k, row in zip(table.n, table.k, table.latency_ms, strict=True):
            curve = zip(table.m.tolist(), row.tolist(), strict=True)
            sites[int(n), int(k)] = {m: ms for m, ms in curve if ms == ms}
        return GemmTable(sites, lambda m, n, k: self.gemm_sol(mode, m, n, k))

    def _Gemm(self, op: Any, call: Call) -> float:
        m, n, k = call.x, op.n, op.k
        sol = self.gemm_sol(op.quant, m, n, k)
        if self.analytic:
            return sol
        if op.quant != "fp8_static":
            return self.gemms(op.quant).at(m, n, k)
        value = self.gemms("fp8").at(m, n, k)
        value -= clamped(self.quantize("compute_scale"), m, k)[0]
        if op.low_precision_input:
            scale, at_m, at_k = clamped(self.quantize("scale_matrix"), m, k)
            value -= scale * (m * k) / (at_m * at_k)
        return max(value, sol)

    def _quantize(self, name: str) -> dict:
        table = getattr(self.tables, name)()
        return tree_of((table.m, table.k), table.latency_ms)

    def _MlaBmm(self, op: Any, call: Call) -> float:
        def sol(tokens: float, heads: int) -> float:
            moved = heads * (640 * tokens + 65536) * BYTES[op.quant]
            return self.bound(
                2 * tokens * heads * 128 * 512, self.flops(op.quant), moved
            )

        if self.analytic:
            return sol(call.b, op.heads)
        table = self.tables.bmm(op.quant, op.pre) or self.tables.bmm("bfloat16", op.pre)
        curves = tree_of((table.heads, table.tokens), table.latency_ms)
        heads = op.heads
        if heads not in curves:
            heads = next(p for p in (1 << i for i in range(20)) if p >= heads)
        if heads not in curves:
            raise Miss
        value = on_curve(curves[heads], call.b, lambda t: sol(t, heads))
        return value * op.heads / heads

    def _Moe(self, op: Any, call: Call) -> float:
        tokens = call.x * op.attention_dp
        if self.analytic:
            return self.moe_sol(op, tokens)
        pools = [self.tables.moe()]
        if op.quant == "nvfp4" and op.gated and tokens <= 128:
            pools.insert(0, self.tables.moe_low_latency())
        for pool in pools:
            curve = _expert_curve(op, pool)
            if curve is None or (len(curve) == 1 and tokens < min(curve)):
                continue
            return on_curve(curve, tokens, lambda t: self.moe_sol(op, int(t)))
        raise Miss

    def moe_sol(self, op: Any, tokens: int) -> float:
        t, g = int(tokens) * op.topk, 3 if op.gated else 2
        h, i, tp, ep = op.hidden, op.inter, op.moe_tp, op.moe_ep
        ops = t * h * i * g * 2 // ep // tp
        weights = h * i * g // tp * min(op.experts // ep, t // ep)
        moved = t // ep * h * 2 + t // ep * i * g // tp + weights
        return self.bound(ops, self.flops(op.quant), moved * BYTES[op.quant])


def _for_logits(op: Any, call: Call) -> Call:
    return call._replace(x=call.b) if op.name.endswith("logits_gemm") else call


def _expert_curve(op: Any, pool: Any) -> dict | None:
    table = pool.get((op.quant, op.distribution)) or pool.get((op.quant, "uniform"))
    if table is None:
        return None
    wanted = [op.topk, op.experts, op.hidden, op.inter, op.moe_tp, op.moe_ep]
    for shape, row in zip(
        table.shapes.tolist(), table.latency_ms.tolist(), strict=True
    ):
        if shape == wanted:
            curve = zip(table.tokens.tolist(), row, strict=True)
            return {t: ms for t, ms in curve if ms == ms}
    return None
