"""Hardware specification of one GPU system: rates, sizes, links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SystemSpec:
    """Rates are per GPU: bytes/s, FLOP/s, bytes; latencies in seconds."""

    name: str
    mem_bw_bytes_per_s: float
    mem_bw_efficiency: float
    mem_latency_s: float
    mem_capacity_bytes: int
    tensor_flops: Mapping[str, float]  # bfloat16, int8, fp8, fp4 -> FLOP/s
    sm_version: int
    power_w: float
    gpus_per_node: int
    intra_node_bw_bytes_per_s: float
    inter_node_bw_bytes_per_s: float
    p2p_latency_s: float
    nccl_version: str
    nccl_mem_bytes: Mapping[int, int]  # by min(tp, 8)
    other_mem_bytes: int
    gpus_per_rack: int | None = None
    inter_rack_bw_bytes_per_s: float | None = None
    origin: str = ""  # package and version, or path, that the figures come from

    def p2p_bw_bytes_per_s(self, gpus: int) -> float:
        """Bandwidth per GPU, one direction, of a group of `gpus` ranks."""
        if gpus <= self.gpus_per_node:
            return self.intra_node_bw_bytes_per_s
        if self.gpus_per_rack is None or gpus <= self.gpus_per_rack:
            return self.inter_node_bw_bytes_per_s
        return self.inter_rack_bw_bytes_per_s or self.inter_node_bw_bytes_per_s
