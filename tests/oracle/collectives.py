"""Prices of collectives, one layer, ms."""

from __future__ import annotations

from typing import Any

from oracle.interpolation import Miss, on_curve, tree_of
from oracle.roofline import BYTES, MS, Call, Roofline


class Collectives(Roofline):
    """All-reduce, NCCL, pipeline hand-over and expert dispatch."""

    def _AllReduce(self, op: Any, call: Call) -> float:
        return self.all_reduce(op.gpus, call.x * op.hidden)

    def _Nccl(self, op: Any, call: Call) -> float:
        size = call.x * op.elements_per_token
        return self.nccl(op.operation, op.gpus, size, op.dtype)

    def _PointToPoint(self, op: Any, call: Call) -> float:
        if op.pp <= 1:
            return 0.0
        wire = call.x * op.hidden * 2 / self.spec.inter_node_bw_bytes_per_s
        return (wire + (0.0 if self.analytic else self.spec.p2p_latency_s)) * MS

    def all_reduce(self, tp: int, size: float) -> float:
        if tp <= 1:
            return 0.0
        node = self.spec.gpus_per_node
        if self.analytic:
            return (
                2 * (2 * size) / tp * (tp - 1) / self.spec.p2p_bw_bytes_per_s(tp) * MS
            )
        if node >= 72 and tp > 4:
            return self.nccl("all_reduce", tp, size)
        table = self.tables.allreduce()
        curves = tree_of((table.gpus, table.size), table.latency_ms)
        if tp in curves:
            return on_curve(curves[tp], size, lambda elements: elements)
        below = [count for count in curves if count <= tp]
        if tp <= node or not below:
            raise Miss
        return self.ring(curves, max(below), tp, size)

    def nccl(self, operation: str, n: int, size: float, dtype: str = "half") -> float:
        if n <= 1:
            return 0.0
        if self.analytic:
            ways = 2 if operation == "all_reduce" else 1
            bandwidth = self.spec.p2p_bw_bytes_per_s(n)
            return ways * BYTES[dtype] * size * (n - 1) / n / bandwidth * MS
        table = self.tables.nccl(operation, dtype)
        curves = tree_of((table.gpus, table.size), table.latency_ms)
        measured = min(n, max(curves))
        if measured not in curves:
            raise Miss
        return self.ring(curves, measured, n, size)

    def ring(self, curves: dict, measured: int, n: int, size: float) -> float:
        """A measured curve stretched to more ranks."""
        value = on_curve(curves[measured], size, lambda elements: elements)
        if n == measured:
            return value
        slower = self.spec.p2p_bw_bytes_per_s(measured) / self.spec.p2p_bw_bytes_per_s(
            n
        )
        return value * (n - 1) / n * measured / (measured - 1) * slower

    def _MoeDispatch(self, op: Any, call: Call) -> float:
        vol, ranks, dp = call.x * op.hidden, op.moe_tp * op.moe_ep, op.attention_dp
        attention_tp = ranks // dp
        spread = "all_gather" if op.pre else "reduce_scatter"
        if op.attn_cp > 1:
            if op.is_context:
                return self.nccl(spread, ranks, vol)
            return 0.0 if op.pre else self.all_reduce(ranks, vol)
        if op.backend == "vllm":
            value = self.all_reduce(ranks, vol) if attention_tp > 1 else 0.0
            return value + (self.nccl(spread, ranks, vol * dp) if dp > 1 else 0.0)
        if op.backend == "sglang" and attention_tp > 1 and dp > 1:
            inner = "reduce_scatter" if op.pre else "all_gather"
            inside = self.nccl(inner, attention_tp, vol)
            return inside + self.nccl(spread, ranks, vol * dp)
        if op.backend == "trtllm" and self.spec.sm_version == 100:
            if dp == 1:
                return self.all_reduce(ranks, vol)
            share = {"nvfp4": 0.28125, "fp8": 0.5, "fp8_block": 0.5}
            part = share.get(op.moe_quant, 1) if op.pre else 1
            return self.nccl(spread, ranks, vol * dp * part)
        if attention_tp > 1:
            return self.all_reduce(ranks, vol)
        return self.nccl(spread, ranks, vol * dp) if dp > 1 else 0.0
