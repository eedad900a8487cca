"""Resident weight bytes of one rank, from the operations of one forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aisim_jax.models import (
    QUANT_MODES,
    Embedding,
    Gemm,
    Layout,
    ModelSpec,
    Moe,
    Operation,
    Precision,
    resident_weight_bytes,
)


_EXPERT_LAYER_GEMMS = ("shared", "router")


def weight_bytes(operations: Sequence[Operation], pp: int) -> float:
    """Return the resident bytes of `operations` (whole model) per pipeline stage."""
    return _total(operations) / pp


def served_weight_bytes(
    spec: ModelSpec,
    precision: Precision,
    operations: Sequence[Operation],
    layout: Layout,
    backend: str,
    nextn: int,
) -> float:
    """Return what an engine that is about to serve keeps resident.

    SGLang with the DEEPSEEK family on one stage and without drafting counts exactly:
    embedding split by tp, the leading dense layers as such, the rest with experts.
    """
    exact = (
        backend == "sglang"
        and spec.family == "DEEPSEEK"
        and layout.cp == layout.pp == 1
        and nextn == 0
    )
    if not exact:
        return weight_bytes(operations, layout.pp)
    dense = spec.first_dense_layers
    share = (spec.layers - dense) / spec.layers
    exact_operations = [_exact(op, share, layout.tp) for op in operations]
    dense_elements = dense * 3 * spec.hidden * spec.intermediate // layout.tp
    dense_bytes = dense_elements * QUANT_MODES[precision.gemm].bytes
    return _total(exact_operations) + dense_bytes


def _total(operations: Sequence[Operation]) -> float:
    return sum(size for _, size in resident_weight_bytes(operations))


def _exact(operation: Operation, expert_share: float, tp: int) -> Operation:
    if isinstance(operation, Embedding):
        return replace(operation, vocab=operation.vocab // tp)
    if isinstance(operation, Moe) or (
        isinstance(operation, Gemm)
        and any(word in operation.name for word in _EXPERT_LAYER_GEMMS)
    ):
        return replace(operation, scale=float(round(operation.scale * expert_share)))
    return operation
