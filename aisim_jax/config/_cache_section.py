"""The KV cache of a worker: block size, capacity, and the levels below it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from ._domains import CountDomain, FractionDomain
from ._problems import problem
from ._record import (
    U64,
    Count,
    Flag,
    Fraction,
    NonNegative,
    Record,
)
from ._variants import ByType


ExactBytes = Annotated[int, Field(strict=True, ge=0, le=2**53)]
PositiveU64 = Annotated[U64, Field(gt=0)]
BLOCK_SIZE = "Tokens of a block; null = vllm 64, sglang 1, trtllm 32."
MEMORY_FRACTION = "Share of the GPU memory; null = 0.9, sglang 0.88."


class DefaultCapacity(Record):
    """Blocks from the memory that the model leaves."""

    type: Literal["default"] = Field(default="default", description="Kind.")
    memory_fraction: Fraction | None = Field(default=None, description=MEMORY_FRACTION)
    cuda_graph_reserved_bytes: ExactBytes = Field(
        default=0, description="Memory kept for captured graphs."
    )


class FixedCapacity(Record):
    """A given number of blocks, or of bytes."""

    type: Literal["fixed"] = Field(description="Kind.")
    blocks: Count | None = Field(default=None, description="Blocks of a rank.")
    bytes: PositiveU64 | None = Field(default=None, description="Bytes of a rank.")

    @model_validator(mode="after")
    def _check(self) -> FixedCapacity:
        if (self.blocks is None) == (self.bytes is None):
            given = "neither" if self.blocks is None else "both"
            raise problem(
                "one_capacity", "", f"fixed needs blocks or bytes, got {given}"
            )
        return self


class DefaultCapacitySearch(Record):
    """Blocks from a searched share of the memory."""

    type: Literal["default"] = Field(default="default", description="Kind.")
    memory_fraction: FractionDomain | None = Field(
        default=None, description=MEMORY_FRACTION
    )


class FixedCapacitySearch(Record):
    """A given number of blocks for every candidate."""

    type: Literal["fixed"] = Field(description="Kind.")
    blocks: Count = Field(description="Blocks of a rank.")


GRAPH_INERT = (("cuda_graph_reserved_bytes", 0),)
Capacity = Annotated[DefaultCapacity | FixedCapacity, ByType("default", GRAPH_INERT)]
CapacitySearch = Annotated[
    DefaultCapacitySearch | FixedCapacitySearch, ByType("default")
]


class HostOffload(Record):
    """Blocks in host memory; not simulated yet."""

    scope: Literal["dp_rank_local", "cluster_shared"] = Field(
        default="dp_rank_local", description="Who shares the blocks."
    )
    num_host_blocks: Count = Field(description="Blocks.")
    d2h_bandwidth_gbps: NonNegative = Field(default=32.0, description="Out, GB/s.")
    h2d_bandwidth_gbps: NonNegative = Field(default=32.0, description="In, GB/s.")
    shared_d2h_bandwidth_gbps: NonNegative = Field(
        default=80.0, description="Out, all ranks, GB/s."
    )
    shared_h2d_bandwidth_gbps: NonNegative = Field(
        default=80.0, description="In, all ranks, GB/s."
    )
    latency_to_first_byte_ms: NonNegative = Field(default=0.0, description="ms.")


class G3Offload(Record):
    """Blocks in storage; not simulated yet."""

    scope: Literal["worker_local", "cluster_shared"] = Field(
        description="Who shares the blocks."
    )
    num_g3_blocks: Count = Field(description="Blocks.")
    latency_to_first_byte_ms: NonNegative = Field(default=0.1, description="ms.")
    read_bandwidth_gbps: NonNegative = Field(default=10.0, description="In, GB/s.")
    write_bandwidth_gbps: NonNegative = Field(default=10.0, description="Out, GB/s.")
    shared_read_bandwidth_gbps: NonNegative = Field(
        default=80.0, description="In, all workers, GB/s."
    )
    shared_write_bandwidth_gbps: NonNegative = Field(
        default=80.0, description="Out, all workers, GB/s."
    )


class Kvcr(Record):
    """Fetching of remote blocks; not simulated yet."""

    latency_to_first_byte_ms: NonNegative = Field(default=1.0, description="ms.")
    bandwidth_gbps: NonNegative = Field(default=50.0, description="GB/s.")


class StateCache(Record):
    """Recurrent state beside the KV cache; not simulated yet."""

    bytes_per_request: PositiveU64 | None = Field(
        default=None, description="Bytes of a request; null = from the model."
    )
    mamba_cache_dtype: Literal["auto", "float16", "float32"] = Field(
        default="auto", description="Precision of a recurrent state."
    )
    indexer_cache_dtype: Literal["auto", "fp8", "mxfp4"] = Field(
        default="auto", description="Precision of an indexer."
    )


class KvCachePrediction(Record):
    """KV cache of a worker."""

    block_size: Count | None = Field(default=None, description=BLOCK_SIZE)
    prefix_match_unit: PositiveU64 | None = Field(
        default=None, description="Tokens of a prefix match; not simulated yet."
    )
    prefix_caching: Flag = Field(default=True, description="Reuse shared prefixes.")
    bytes_per_token: Count | Literal["auto"] = Field(
        default="auto", description="Bytes of a token; auto = from the model."
    )
    capacity: Capacity = Field(
        default=DefaultCapacity(), description="How many blocks there are."
    )
    host_offload: HostOffload | None = None
    g3_offload: G3Offload | None = None
    kvcr: Kvcr | None = None
    state_cache: StateCache | None = None


class KvCacheRecommendation(Record):
    """KV cache of a searched worker."""

    block_size: CountDomain | None = Field(default=None, description=BLOCK_SIZE)
    prefix_caching: Flag = Field(default=True, description="Reuse shared prefixes.")
    bytes_per_token: Count | Literal["auto"] = Field(
        default="auto", description="Bytes of a token; auto = from the model."
    )
    capacity: CapacitySearch = Field(
        default=DefaultCapacitySearch(), description="How many blocks there are."
    )
    host_offload: HostOffload | None = None
