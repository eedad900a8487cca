"""Rates and widths: what an operation costs at the speed of light."""

from __future__ import annotations

from typing import Any, NamedTuple


MS = 1000.0
BYTES = {
    "bfloat16": 2,
    "int8_wo": 1,
    "int4_wo": 0.5,
    "fp8": 1,
    "fp8_static": 1,
    "fp8_block": 1,
    "nvfp4": 9 / 16,
    "half": 2,
    "int8": 1,
}
RATE = {
    "bfloat16": "bfloat16",
    "int8_wo": "bfloat16",
    "int4_wo": "bfloat16",
    "fp8": "fp8",
    "fp8_static": "fp8",
    "fp8_block": "fp8",
    "nvfp4": "fp4",
}


class Call(NamedTuple):
    """What one operation sees: tokens, requests or rows, lengths per request."""

    x: int
    b: int
    s: int = 0
    prefix: int = 0
    kv_len: int = 0


class Roofline:
    """One system x engine; `analytic` is database mode SOL."""

    def __init__(self, tables: Any, *, analytic: bool = False) -> None:
        self.tables, self.spec, self.analytic = tables, tables.spec, analytic
        self.bandwidth = tables.spec.mem_bw_bytes_per_s

    def memop(self, moved_bytes: float) -> float:
        """A table-less pass over memory."""
        if self.analytic:
            return moved_bytes / self.bandwidth * MS
        rate = self.bandwidth * self.spec.mem_bw_efficiency
        return (moved_bytes / rate + self.spec.mem_latency_s) * MS

    def bound(self, ops: float, rate: float, moved_bytes: float) -> float:
        """The slower of arithmetic and memory."""
        return max(ops / rate, moved_bytes / self.bandwidth) * MS

    def flops(self, mode: str) -> float:
        return self.spec.tensor_flops[RATE[mode]]

    def decode_flops(self, kv: str) -> float:
        fast = kv == "fp8" and self.spec.sm_version >= 89
        return self.flops("fp8" if fast else "bfloat16")
