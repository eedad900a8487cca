"""Operation lists of grouped-query attention models: LLAMA (dense) and MOE.

Names carry `context_` or `generation_`. Per token, an add-norm moves 2h -> 2h and a
gated activation 2I/tp -> I/tp elements of bf16.
"""

from __future__ import annotations

from .._backends import Backend
from ._experts import routed_experts
from ._layout import Layout
from ._operations import (
    AllReduce,
    ContextAttention,
    Elementwise,
    Embedding,
    Gemm,
    GenerationAttention,
    Operation,
    PointToPoint,
)
from ._precision import Precision
from ._spec import ModelSpec


# Load skew of the experts: exponent of the power law of tokens per expert.
EXPERT_LOAD = "power_law_1.2"


def gqa_operations(
    spec: ModelSpec,
    precision: Precision,
    layout: Layout,
    backend: Backend,
    *,
    phase: str,
    growth: float,
    lanes: tuple[str, ...],
) -> list[Operation]:
    """Operations of one pass, in the order of their sum.

    phase: "context" or "generation"
    growth: factor on every scale of the generation pass, (layers + nextn) / layers
    """
    block = _attention_block(
        spec, precision, layout, phase=phase, growth=growth, lanes=lanes
    )
    if spec.experts:
        rest = _expert_block(
            spec, precision, layout, backend, phase=phase, growth=growth
        )
    else:
        rest = _dense_block(spec, precision, layout, phase=phase, growth=growth)
    hop = PointToPoint(f"{phase}_p2p", (layout.pp - 1) * growth, spec.hidden, layout.pp)
    return [*block, *rest, hop]


def _attention_block(
    spec: ModelSpec,
    precision: Precision,
    layout: Layout,
    *,
    phase: str,
    growth: float,
    lanes: tuple[str, ...],
) -> list[Operation]:
    h, tp = spec.hidden, layout.tp
    layers = spec.layers * growth
    width = spec.heads * spec.head_dim // tp
    kv_heads = spec.kv_heads_at(tp)
    qkv = width + 2 * spec.head_dim * kv_heads
    gemm = precision.gemm

    def attention(scale: float, window: int) -> Operation:
        if phase == "context":
            return ContextAttention(
                name="context_attention",
                scale=scale,
                heads=spec.heads // tp,
                kv_heads=kv_heads,
                head_dim=spec.head_dim,
                window=window,
                kv_quant=precision.kv,
                fmha_quant=precision.fmha,
                qk_norm=spec.qk_norm,
                rope=True,
                lanes=lanes,
            )
        return GenerationAttention(
            name="generation_attention",
            scale=scale,
            heads=spec.heads // tp,
            kv_heads=kv_heads,
            head_dim=spec.head_dim,
            window=window,
            kv_quant=precision.kv,
            qk_norm=spec.qk_norm,
            lanes=lanes,
        )

    # gpt-oss: every second layer sees only a window; that half leads the list.
    windowed = spec.sliding_window if spec.architecture == "GptOssForCausalLM" else 0
    share = layers / 2 if windowed else layers
    return [
        *([attention(share, windowed)] if windowed else []),
        Embedding(f"{phase}_embedding", growth, spec.vocab // tp, h),
        Elementwise(f"{phase}_add_norm_1", layers, 8.0 * h),
        Gemm(f"{phase}_qkv_gemm", layers, qkv, h, gemm),
        attention(share, 0),
        Gemm(f"{phase}_proj_gemm", layers, h, width, gemm, low_precision_input=True),
        Elementwise(f"{phase}_add_norm_2", layers, 8.0 * h),
    ]


def _dense_block(
    spec: ModelSpec, precision: Precision, layout: Layout, *, phase: str, growth: float
) -> list[Operation]:
    h, tp, gemm = spec.hidden, layout.tp, precision.gemm
    layers = spec.layers * growth
    gate_up, down = 2 * spec.intermediate // tp, spec.intermediate // tp
    return [
        Gemm(f"{phase}_gate_ffn1_gemm", layers, gate_up, h, gemm),
        Elementwise(f"{phase}_act_gate", layers, 2.0 * (gate_up + down)),
        Gemm(f"{phase}_ffn2_gemm", layers, h, down, gemm, low_precision_input=True),
        Gemm(f"{phase}_logits_gemm", growth, spec.vocab // tp, h, "bfloat16"),
        AllReduce(f"{phase}_embedding_ar", growth, h, tp),
        AllReduce(f"{phase}_ar_1", layers, h, tp),
        AllReduce(f"{phase}_ar_2", layers, h, tp),
    ]


def _expert_block(
    spec: ModelSpec,
    precision: Precision,
    layout: Layout,
    backend: Backend,
    *,
    phase: str,
    growth: float,
) -> list[Operation]:
    """Router, dispatch, experts; prefill has no logits, dispatch all-reduces."""
    h, tp = spec.hidden, layout.tp
    logits = Gemm(f"{phase}_logits_gemm", growth, spec.vocab // tp, h, "bfloat16")
    return [
        *routed_experts(
            spec,
            precision,
            layout,
            backend,
            phase=phase,
            scale=spec.layers * growth,
            distribution=EXPERT_LOAD,
        ),
        *([logits] if phase == "generation" else []),
        AllReduce(f"{phase}_embedding_ar", growth, h, tp),
    ]
