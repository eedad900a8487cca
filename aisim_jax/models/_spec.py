"""Geometry of a checkpoint: what sizes, costs and memory are computed from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ._checkpoint_quantization import CheckpointQuantization


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Sizes of one checkpoint, whole model (not divided by any parallel size).

    Widths are elements, `context_length` is tokens; 0 means the model has none.

    name: catalogue name, or the path it was read from
    architecture, family: Hugging Face class; family of operation lists
    intermediate: width of a dense feed-forward block
    experts, topk, moe_intermediate: routed experts, experts per token, expert width
    shared_experts, shared_intermediate: their number and their total width
    first_dense_layers: leading layers without experts
    q_lora, kv_lora, nope_dim, rope_dim, v_dim: latent attention (MLA)
    sliding_window: window of the windowed layers, where the family has some
    checkpoint: precision facts of the files
    source: origin of the numbers
    config: language-model fields of config.json as read (treat as read-only)
    """

    name: str
    architecture: str
    family: str
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    intermediate: int
    vocab: int
    context_length: int
    experts: int = 0
    topk: int = 0
    moe_intermediate: int = 0
    shared_experts: int = 0
    shared_intermediate: int = 0
    first_dense_layers: int = 0
    qk_norm: bool = False
    q_lora: int = 0
    kv_lora: int = 0
    nope_dim: int = 0
    rope_dim: int = 0
    v_dim: int = 0
    sliding_window: int = 0
    checkpoint: CheckpointQuantization = field(default_factory=CheckpointQuantization)
    source: str = ""
    config: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def is_moe(self) -> bool:
        """Whether tokens are routed to experts."""
        return self.experts > 0

    @property
    def is_mla(self) -> bool:
        """Whether attention keeps a latent instead of keys and values."""
        return self.kv_lora > 0

    def kv_heads_at(self, tp: int) -> int:
        """Key-value heads of one rank; copied where tp exceeds their number."""
        return -(-(self.kv_heads or self.heads) // tp)

    def kv_elements_at(self, tp: int) -> int:
        """Cache elements that one token adds in one full-attention layer of one rank.

        Latent: kv_lora + rope_dim, copied over tp; else 2 * kv_heads_at(tp) * head_dim.
        """
        if self.is_mla:
            return self.kv_lora + self.rope_dim
        return 2 * self.kv_heads_at(tp) * self.head_dim
