"""Profile of a model that has measured forward passes only; not served yet."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ._cache_section import ExactBytes, PositiveU64
from ._record import Count, Fraction, Name, Record, Text, Whole


PositiveU32 = Annotated[Count, Field(le=2**32 - 1)]
PositiveBytes = Annotated[Count, Field(le=2**53)]


class FpmCacheGroup(Record):
    """Layers that keep their cache alike."""

    name: Name = Field(description="Name of the group.")
    kind: Literal["attention", "convolution"] = Field(description="What is kept.")
    num_layers: PositiveU32 = Field(description="Layers.")
    block_size_tokens: PositiveU32 = Field(description="Tokens of a block.")
    page_size_bytes: PositiveBytes = Field(description="Bytes of a block.")
    sliding_window: PositiveU32 | None = Field(default=None, description="Tokens.")


class FpmRuntimeMemory(Record):
    """Memory that an engine reported."""

    kv_cache_bytes: PositiveBytes = Field(description="KV cache.")
    gpu_memory_utilization: Fraction = Field(description="Share of the GPU.")
    max_model_len: PositiveU64 = Field(description="Context limit, tokens.")
    provenance: Name = Field(description="Where the figures come from.")


class FpmResources(Record):
    """Memory of a deployment and the sizes it was measured for."""

    weights_bytes: ExactBytes | None = Field(default=None, description="Weights.")
    activations_bytes: ExactBytes | None = Field(
        default=None, description="Activations."
    )
    runtime_overhead_bytes: ExactBytes | None = Field(
        default=None, description="Runtime."
    )
    comm_overhead_bytes: ExactBytes | None = Field(
        default=None, description="Collectives."
    )
    runtime_memory: FpmRuntimeMemory | None = None
    kv_bytes_per_token: PositiveBytes | None = Field(
        default=None, description="KV cache of a token."
    )
    cache_layout: Literal["linear", "grouped"] = Field(description="Kind of cache.")
    cache_groups: tuple[FpmCacheGroup, ...] = Field(
        default=(), description="Groups of a grouped cache."
    )
    max_num_tokens: Count = Field(description="Tokens of a pass.")
    max_batch_size: Count = Field(description="Requests of a pass.")
    provenance: Name = Field(description="Where the figures come from.")


class FpmSpeculativeExecution(Record):
    """Speculative rounds that were measured as a whole."""

    kind: Literal["speculative_round"] = Field(description="Kind.")
    method: Literal["eagle3"] = Field(description="Scheme.")
    num_draft_tokens: Annotated[Count, Field(ge=1, le=5)] = Field(
        description="Draft tokens."
    )
    draft_model: Name = Field(description="Draft model.")
    draft_revision: Text = Field(description="Its revision.")
    timing_scope: Literal["model_step_cuda"] = Field(description="What was timed.")


class FpmDeployment(Record):
    """One measured deployment."""

    system: Name = Field(description="Hardware.")
    backend: Literal["vllm"] = Field(description="Engine.")
    backend_version: Name | None = Field(default=None, description="Engine version.")
    tp: Count = Field(description="Tensor-parallel ranks.")
    pp: Literal[1] = Field(default=1, description="Pipeline stages.")
    dp: Count = Field(description="Attention data ranks.")
    moe_tp: Count = Field(description="Tensor ranks of an expert.")
    moe_ep: Count = Field(description="Expert-parallel ranks.")
    cp: Literal[1] = Field(default=1, description="Context-parallel ranks.")
    gemm_quant_mode: Name = Field(description="Dense layers.")
    moe_quant_mode: Name = Field(description="Experts.")
    fmha_quant_mode: Name = Field(description="Attention.")
    comm_quant_mode: Name = Field(description="Collectives.")
    kv_cache_dtype: Name = Field(description="KV cache.")
    moe_backend: Name = Field(default="auto", description="Expert kernel.")
    attention_backend: Name = Field(default="auto", description="Attention kernel.")
    enable_wideep: Literal[False] = Field(default=False, description="Never.")
    enable_eplb: Literal[False] = Field(default=False, description="Never.")
    worker_type: Literal["prefill", "decode", "aggregated"] | None = Field(
        default=None, description="Role; null = any."
    )
    execution_profile: FpmSpeculativeExecution | None = None
    resources: FpmResources = Field(description="Memory and sizes.")


class FpmModelProfile(Record):
    """A model and its measured deployments."""

    schema_version: Literal[1] = Field(description="Version of this layout.")
    model: Name = Field(description="Model.")
    model_revision: Name = Field(description="Its revision.")
    architecture: Name = Field(description="Architecture.")
    context_length: Count = Field(description="Context limit, tokens.")
    num_experts: Whole = Field(description="Experts; 0 = dense.")
    provenance: Name = Field(description="Where the figures come from.")
    deployments: Annotated[tuple[FpmDeployment, ...], Field(min_length=1)] = Field(
        description="Measured deployments."
    )
