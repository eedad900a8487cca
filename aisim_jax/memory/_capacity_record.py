"""What a capacity estimate returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class MemoryBreakdown:
    """Non-KV bytes of one rank, each rounded down."""

    weights_bytes: int
    activations_bytes: int
    runtime_overhead_bytes: int
    comm_overhead_bytes: int
    reserved_bytes: int
    cuda_graph_reserved_bytes: int

    def as_dict(self) -> dict[str, int]:
        """Fields by name."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class ToleratedCapacity:
    """The pool shrunk by a safety margin `tolerance_fraction`."""

    tolerance_fraction: float
    total_kv_size_bytes: int
    total_kv_size_tokens: int

    def as_dict(self) -> dict[str, float]:
        """Fields by name."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class KvCapacity:
    """KV capacity of one rank, in bytes and tokens.

    kvcache_quant_mode, memory_breakdown: None on the naive path
    source: "native" (from operations) or "naive_fallback"
    """

    total_gpu_capacity_bytes: int
    total_kv_size_bytes: int
    kv_size_per_token_bytes: int
    total_kv_size_tokens: int
    kvcache_quant_mode: str | None
    source: str
    memory_breakdown: MemoryBreakdown | None
    tolerance_adjusted: ToleratedCapacity | None

    def as_dict(self) -> dict[str, Any]:
        """The flat record; kvcache_quant_mode is absent on the naive path."""
        record: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        if self.kvcache_quant_mode is None:
            del record["kvcache_quant_mode"]
        for name in ("memory_breakdown", "tolerance_adjusted"):
            if record[name] is not None:
                record[name] = record[name].as_dict()
        return record
