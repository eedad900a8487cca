"""Deployment (model, precision, layout, backend) -> its two operation lists."""

from __future__ import annotations

from dataclasses import replace

from .._backends import Backend
from .._errors import UnsupportedError
from ._attention_gqa import gqa_operations
from ._attention_mla import mla_operations
from ._constraints import check_layout
from ._context_parallel import shard_context, shard_dispatch
from ._families import MLA_MOE
from ._layout import Layout
from ._operations import Operation, OperationLists, Overlap
from ._precision import Precision
from ._quantization import KV_BYTES
from ._spec import ModelSpec


def build_operations(
    spec: ModelSpec,
    precision: Precision,
    layout: Layout,
    backend: Backend,
    *,
    nextn: int = 0,
    context_lanes: tuple[str, ...] = ("default",),
    generation_lanes: tuple[str, ...] = ("default",),
) -> OperationLists:
    """Operations of one prefill and one decode pass, in the order of their sum.

    nextn: draft tokens per step (multi-token prediction); decode scales grow by
        (layers + nextn) / layers
    context_lanes, generation_lanes: attention kernel sources in order of preference

    Raises InvalidInputError for a layout that the model cannot run under and
    UnsupportedError for a family or layout that is not built.
    """
    check_layout(spec, precision, layout, backend, nextn)
    if spec.architecture == "MistralForCausalLM" and spec.sliding_window:
        raise UnsupportedError(
            f"{spec.name}: a {spec.sliding_window}-token window in every layer is not "
            "built; use a release without sliding window (v0.2 or later)."
        )
    mla = spec.family in MLA_MOE
    operations = mla_operations if mla else gqa_operations
    context = operations(
        spec,
        precision,
        layout,
        backend,
        phase="context",
        growth=1.0,
        lanes=context_lanes,
    )
    generation = operations(
        spec,
        precision,
        layout,
        backend,
        phase="generation",
        growth=(spec.layers + nextn) / spec.layers,
        lanes=generation_lanes,
    )
    if layout.cp > 1:
        context = shard_context(
            context,
            layout.cp,
            spec.layers,
            kv_bytes_per_token_and_layer(spec, precision, layout.tp),
            gather_before="context_add_norm_2" if mla else "context_proj_gemm",
            split_hop=not mla,
        )
        if mla:
            generation = [_shard_overlap(o, layout.cp) for o in generation]
    return OperationLists(tuple(context), tuple(generation))


def kv_bytes_per_token_and_layer(
    spec: ModelSpec, precision: Precision, tp: int
) -> float:
    """Cache bytes that one token adds in one full-attention layer of one rank."""
    return float(spec.kv_elements_at(tp) * KV_BYTES[precision.kv])


def _shard_overlap(operation: Operation, cp: int) -> Operation:
    if isinstance(operation, Overlap):
        return replace(operation, left=tuple(shard_dispatch(operation.left, cp)))
    return operation
