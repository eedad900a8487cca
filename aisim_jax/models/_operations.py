"""The operations of one forward pass, as immutable records.

A deployment lowers to two flat tuples of these (context and generation). A step
costs the sum over operations of `scale * unit latency`; see the operation-level
estimator for the price of each. Lengths are tokens, widths are elements, all per
rank (already divided by the parallel sizes that shard them).
"""

from __future__ import annotations

from dataclasses import dataclass

from .._backends import Backend


@dataclass(frozen=True, slots=True)
class Embedding:
    """Gather `tokens` rows of a (vocab, hidden) bf16 table."""

    name: str
    scale: float
    vocab: int
    hidden: int
    seq_split: int = 1


@dataclass(frozen=True, slots=True)
class Elementwise:
    """Memory-bound pass of `bytes_per_token`."""

    name: str
    scale: float
    bytes_per_token: float
    seq_split: int = 1


@dataclass(frozen=True, slots=True)
class Gemm:
    """(tokens, k) x (k, n) in precision `quant`."""

    name: str
    scale: float
    n: int
    k: int
    quant: str
    low_precision_input: bool = False
    seq_split: int = 1


@dataclass(frozen=True, slots=True)
class ContextAttention:
    """Prefill attention of one layer; `lanes` are kernel sources in order of preference."""

    name: str
    scale: float
    heads: int
    kv_heads: int
    head_dim: int
    window: int
    kv_quant: str
    fmha_quant: str
    qk_norm: bool
    rope: bool
    lanes: tuple[str, ...]
    cp: int = 1


@dataclass(frozen=True, slots=True)
class GenerationAttention:
    """Decode attention of one layer."""

    name: str
    scale: float
    heads: int
    kv_heads: int
    head_dim: int
    window: int
    kv_quant: str
    qk_norm: bool
    lanes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Moe:
    """Routed experts of one layer over `tokens * attention_dp` tokens."""

    name: str
    scale: float
    hidden: int
    inter: int
    topk: int
    experts: int
    moe_tp: int
    moe_ep: int
    attention_dp: int
    quant: str
    distribution: str
    gated: bool = True


@dataclass(frozen=True, slots=True)
class MoeDispatch:
    """Collectives before (`pre`) or after the experts."""

    name: str
    scale: float
    hidden: int
    topk: int
    experts: int
    moe_tp: int
    moe_ep: int
    attention_dp: int
    pre: bool
    backend: Backend
    moe_quant: str
    attn_cp: int = 1
    is_context: bool = True


@dataclass(frozen=True, slots=True)
class AllReduce:
    """Custom all-reduce of tokens x hidden elements over `gpus` ranks."""

    name: str
    scale: float
    hidden: int
    gpus: int
    seq_split: int = 1


@dataclass(frozen=True, slots=True)
class Nccl:
    """NCCL collective of tokens x elements_per_token elements over `gpus` ranks."""

    name: str
    scale: float
    elements_per_token: float
    gpus: int
    dtype: str
    operation: str
    seq_split: int = 1


@dataclass(frozen=True, slots=True)
class PointToPoint:
    """Pipeline hand-over of tokens x hidden; `scale` starts from pp - 1."""

    name: str
    scale: float
    hidden: int
    pp: int
    seq_split: int = 1


@dataclass(frozen=True, slots=True)
class ContextMla:
    """Prefill MLA kernel (granular, without projections)."""

    name: str
    scale: float
    heads: int
    kv_quant: str
    fmha_quant: str
    cp: int = 1


@dataclass(frozen=True, slots=True)
class GenerationMla:
    """Decode MLA kernel (granular, without projections)."""

    name: str
    scale: float
    heads: int
    kv_quant: str


@dataclass(frozen=True, slots=True)
class MlaBmm:
    """Batched matmul that absorbs (pre) or expands (post) the latent."""

    name: str
    scale: float
    heads: int
    quant: str
    pre: bool


@dataclass(frozen=True, slots=True)
class MlaModule:
    """Measured MLA block with its projections; prefill when `is_context`."""

    name: str
    scale: float
    heads: int
    kv_quant: str
    fmha_quant: str
    gemm_quant: str
    native_heads: int
    is_context: bool


@dataclass(frozen=True, slots=True)
class Fallback:
    """Price `primary`; where its table has no data, the sum of `alternative`."""

    name: str
    primary: Operation
    alternative: tuple[Operation, ...]


@dataclass(frozen=True, slots=True)
class Overlap:
    """Two groups that run side by side: the slower one counts."""

    name: str
    left: tuple[Operation, ...]
    right: tuple[Operation, ...]


Operation = (
    Embedding
    | Elementwise
    | Gemm
    | ContextAttention
    | GenerationAttention
    | Moe
    | MoeDispatch
    | AllReduce
    | Nccl
    | PointToPoint
    | ContextMla
    | GenerationMla
    | MlaBmm
    | MlaModule
    | Fallback
    | Overlap
)


@dataclass(frozen=True, slots=True)
class OperationLists:
    """All operations of one forward pass, in the order in which they are summed."""

    context: tuple[Operation, ...]
    generation: tuple[Operation, ...]
