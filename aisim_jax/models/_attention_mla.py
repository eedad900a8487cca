"""Operation lists of multi-head latent attention models: DEEPSEEK and KIMIK25.

All layers are priced as expert layers. The attention block is one measured module
where all projections share a precision, with a granular list to fall back on;
otherwise the granular list stands alone.
"""

from __future__ import annotations

from .._backends import Backend
from ._experts import routed_experts
from ._layout import Layout
from ._operations import (
    AllReduce,
    ContextAttention,
    ContextMla,
    Elementwise,
    Embedding,
    Fallback,
    Gemm,
    GenerationAttention,
    GenerationMla,
    MlaBmm,
    MlaModule,
    Operation,
    Overlap,
    PointToPoint,
)
from ._precision import Precision
from ._spec import ModelSpec


EXPERT_LOAD = "power_law_1.01"

# Granular MLA kernels are priced at the head count of DeepSeek-V3 whatever the model
# has; projections and batched matmuls use the model's own.
KERNEL_HEADS = 128

_NESTED_LANES = ("default",)


def mla_operations(
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
    h, tp = spec.hidden, layout.tp
    layers = spec.layers * growth
    shared = _shared_expert(spec, precision, layout, phase=phase, scale=layers)
    routed = routed_experts(
        spec,
        precision,
        layout,
        backend,
        phase=phase,
        scale=layers,
        distribution=EXPERT_LOAD,
        dispatch_knows_phase=True,
    )
    if phase == "context":
        feed_forward: list[Operation] = [*shared, *routed]
    else:
        feed_forward = [
            Overlap("generation_moe_overlap", left=tuple(routed), right=tuple(shared))
        ]
    # vLLM reduces attention and expert outputs on top of what dispatch charges.
    reduce = AllReduce(f"{phase}_tp_allreduce", 2 * layers, h, tp)
    return [
        Embedding(f"{phase}_embedding", growth, spec.vocab, h),
        Elementwise(f"{phase}_add_norm_1", layers, 8.0 * h),
        *_attention(
            spec, precision, layout, backend, phase=phase, scale=layers, lanes=lanes
        ),
        Elementwise(f"{phase}_add_norm_2", layers, 8.0 * h),
        *feed_forward,
        Gemm(f"{phase}_logits_gemm", growth, spec.vocab // tp, h, "bfloat16"),
        *([reduce] if backend == "vllm" else []),
        PointToPoint(f"{phase}_p2p", (layout.pp - 1) * growth, h, layout.pp),
    ]


def projection_modes(spec: ModelSpec, gemm: str) -> dict[str, str]:
    """Precision of the projections q, kv, o: `gemm`, or bf16 where excluded."""
    return {
        part: "bfloat16" if spec.checkpoint.excludes(part) else gemm
        for part in ("q", "kv", "o")
    }


def _attention(
    spec: ModelSpec,
    precision: Precision,
    layout: Layout,
    backend: Backend,
    *,
    phase: str,
    scale: float,
    lanes: tuple[str, ...],
) -> list[Operation]:
    modes = projection_modes(spec, precision.gemm)
    shared_mode = modes["q"] if len(set(modes.values())) == 1 else None
    granular = _granular(
        spec,
        precision,
        layout,
        backend,
        phase=phase,
        scale=scale,
        modes=modes,
        lanes=lanes if shared_mode is None else _NESTED_LANES,
    )
    if shared_mode is None:
        return granular
    module = MlaModule(
        name=f"{phase}_mla_module",
        scale=scale,
        heads=spec.heads // layout.tp,
        kv_quant=precision.kv,
        fmha_quant=precision.fmha,
        gemm_quant=shared_mode,
        native_heads=spec.heads,
        is_context=phase == "context",
    )
    return [Fallback(f"{phase}_mla_block", module, tuple(granular))]


def _granular(
    spec: ModelSpec,
    precision: Precision,
    layout: Layout,
    backend: Backend,
    *,
    phase: str,
    scale: float,
    modes: dict[str, str],
    lanes: tuple[str, ...],
) -> list[Operation]:
    h, heads = spec.hidden, spec.heads // layout.tp
    down = spec.q_lora + spec.kv_lora + spec.rope_dim
    down_mode = (
        "bfloat16" if modes["q"] == modes["kv"] == "bfloat16" else precision.gemm
    )
    query = heads * (spec.nope_dim + spec.rope_dim)
    projections = [
        Gemm(f"{phase}_downscale_gemm", scale, down, h, down_mode),
        Gemm(f"{phase}_q_b_proj_gemm", scale, query, spec.q_lora or h, modes["q"]),
    ]
    output = Gemm(f"{phase}_proj_gemm", scale, h, heads * spec.v_dim, quant=modes["o"])
    if phase == "context":
        expand = Gemm(
            "context_kv_b_proj_gemm",
            scale,
            heads * (spec.nope_dim + spec.v_dim),
            spec.kv_lora,
            quant=modes["kv"],
        )
        kernel = _context_kernel(spec, precision, layout, backend, scale, lanes)
        return [*projections, expand, kernel, output]
    kernels = _generation_kernels(
        spec, precision, layout, backend, scale, modes["kv"], lanes
    )
    return [*projections, *kernels, output]


def _context_kernel(
    spec: ModelSpec,
    precision: Precision,
    layout: Layout,
    backend: Backend,
    scale: float,
    lanes: tuple[str, ...],
) -> Operation:
    heads = spec.heads // layout.tp
    if backend != "vllm":
        return ContextMla(
            name="context_attention",
            scale=scale,
            heads=KERNEL_HEADS // layout.tp,
            kv_quant=precision.kv,
            fmha_quant=precision.fmha,
        )
    return ContextAttention(
        name="context_attention",
        scale=scale,
        heads=heads,
        kv_heads=heads,
        head_dim=spec.v_dim,
        window=0,
        kv_quant=precision.kv,
        fmha_quant=precision.fmha,
        qk_norm=False,
        rope=True,
        lanes=lanes,
    )


def _generation_kernels(
    spec: ModelSpec,
    precision: Precision,
    layout: Layout,
    backend: Backend,
    scale: float,
    kv_projection: str,
    lanes: tuple[str, ...],
) -> list[Operation]:
    heads = spec.heads // layout.tp
    if backend == "vllm":
        return [
            GenerationAttention(
                name="generation_attention",
                scale=scale,
                heads=heads,
                kv_heads=heads,
                head_dim=spec.v_dim,
                window=0,
                kv_quant=precision.kv,
                qk_norm=False,
                lanes=lanes,
            )
        ]
    quant = "bfloat16" if kv_projection == "bfloat16" else "fp8"
    return [
        MlaBmm("generation_bmm_pre", scale, heads, quant, pre=True),
        GenerationMla(
            name="generation_attention",
            scale=scale,
            heads=KERNEL_HEADS // layout.tp,
            kv_quant=precision.kv,
        ),
        MlaBmm("generation_bmm_post", scale, heads, quant, pre=False),
    ]


def _shared_expert(
    spec: ModelSpec, precision: Precision, layout: Layout, *, phase: str, scale: float
) -> list[Operation]:
    h, tp = spec.hidden, layout.tp
    width = spec.shared_intermediate
    gate_up, down = 2 * width // tp, width // tp
    excluded = spec.checkpoint.excludes_shared_experts
    mode = "bfloat16" if excluded else precision.gemm
    return [
        Gemm(f"{phase}_shared_gate_up_gemm", scale, gate_up, h, mode),
        Elementwise(f"{phase}_shared_act_gate", scale, 2.0 * (gate_up + down)),
        Gemm(f"{phase}_shared_ffn2_gemm", scale, h, down, mode),
    ]
