"""Context parallelism of prefill as a rewrite of the operation list.

Each of `cp` ranks holds every cp-th part of the sequence (zig-zag), so token-wise
operations see ceil(tokens / cp); keys and values are gathered once per layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ._operations import (
    AllReduce,
    ContextAttention,
    ContextMla,
    Elementwise,
    Embedding,
    Fallback,
    Gemm,
    MlaModule,
    MoeDispatch,
    Nccl,
    Operation,
    PointToPoint,
)


_TOKEN_WISE = (Embedding, Elementwise, Gemm, AllReduce, PointToPoint)
_ATTENTION = (ContextAttention, ContextMla)


def shard_context(
    operations: Sequence[Operation],
    cp: int,
    layers: int,
    kv_bytes_per_token: float,
    *,
    gather_before: str,
    split_hop: bool,
) -> list[Operation]:
    """Context list under `cp` ranks, with an all-gather of keys and values.

    kv_bytes_per_token: cache bytes of one token and layer, gathered as half elements
    gather_before: name of the operation that follows the gather
    split_hop: whether the pipeline hand-over carries a rank's share only
    """
    gather = Nccl(
        name="context_cp_all_gather",
        scale=float(layers),
        elements_per_token=kv_bytes_per_token / 2,
        gpus=cp,
        dtype="half",
        operation="all_gather",
    )
    sharded: list[Operation] = []
    for operation in operations:
        if operation.name == gather_before:
            sharded.append(gather)
        keep = isinstance(operation, PointToPoint) and not split_hop
        sharded.append(operation if keep else _shard(operation, cp))
    return sharded


def shard_dispatch(operations: Sequence[Operation], cp: int) -> list[Operation]:
    """Tell the collectives of a list how many ranks share the sequence."""
    return [
        replace(operation, attn_cp=cp)
        if isinstance(operation, MoeDispatch)
        else operation
        for operation in operations
    ]


def _shard(operation: Operation, cp: int) -> Operation:
    if isinstance(operation, _TOKEN_WISE):
        return replace(operation, seq_split=cp)
    if isinstance(operation, _ATTENTION):
        return replace(operation, cp=cp)
    if isinstance(operation, MoeDispatch):
        return replace(operation, attn_cp=cp)
    if isinstance(operation, MlaModule):
        # The measured block has no sharded form: a rank pays its share of it.
        return replace(operation, scale=operation.scale / cp)
    if isinstance(operation, Fallback):
        return Fallback(
            operation.name,
            _shard(operation.primary, cp),
            tuple(_shard(part, cp) for part in operation.alternative),
        )
    return operation
