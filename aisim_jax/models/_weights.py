"""Resident weight bytes of an operation list, per rank before division by pp."""

from __future__ import annotations

from collections.abc import Iterable

from ._operations import Embedding, Fallback, Gemm, Moe, Operation, Overlap
from ._quantization import QUANT_MODES


def resident_weight_bytes(operations: Iterable[Operation]) -> list[tuple[str, float]]:
    """(operation name, bytes) of every operation that keeps weights, in list order.

    linear n x k, repeated r times: r*n*k*q
    embedding: rows * hidden * 2
    experts: r * floor(floor(hidden*width*E*q*m / ep) / moe_tp), m = 3 gated, else 2
    fallback: the primary's if positive, else the sum of the alternative's parts
    overlap: both sides

    q is bytes per weight of the operation's precision; scales are not counted. Use
    the context list: generation scales grow with speculative layers.
    """
    pairs = ((o.name, _resident(o)) for o in operations)
    return [(name, size) for name, size in pairs if size]


def _resident(operation: Operation) -> float:
    if isinstance(operation, Gemm):
        per_layer = operation.n * operation.k * QUANT_MODES[operation.quant].bytes
        return operation.scale * per_layer
    if isinstance(operation, Embedding):
        return operation.scale * operation.vocab * operation.hidden * 2.0
    if isinstance(operation, Moe):
        matrices = 3 if operation.gated else 2
        total = operation.hidden * operation.inter * operation.experts * matrices
        per_rank = total * QUANT_MODES[operation.quant].bytes // operation.moe_ep
        return operation.scale * (per_rank // operation.moe_tp)
    if isinstance(operation, Fallback):
        primary = _resident(operation.primary)
        return primary or sum(map(_resident, operation.alternative))
    if isinstance(operation, Overlap):
        return sum(map(_resident, (*operation.left, *operation.right)))
    return 0.0
