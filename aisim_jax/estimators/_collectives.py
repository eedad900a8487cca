"""Collectives: which calls an operation makes, and what each costs.

An operation reduces to a list of `Call`s; sizes are elements per token. Beyond the
measured rank counts a ring factor applies: (n - 1)/n * e/(e - 1) * bw(e)/bw(n).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._errors import MissingPerfDataError
from ..models import COMM_BYTES, AllReduce, MoeDispatch, Nccl
from ..systems import CommTable, PerfTables
from ._one_axis import Axis, axis_of
from ._speed_of_light import MS


CUSTOM = "custom_all_reduce"
RACK_NODE_GPUS = 72
TRTLLM_GATHER_SHARE = {"nvfp4": 0.28125, "fp8": 0.5, "fp8_block": 0.5}


@dataclass(frozen=True, slots=True)
class Call:
    """One collective over `gpus` ranks of `elements` elements per token."""

    kind: str
    gpus: int
    elements: float
    dtype: str = "half"


def calls_of(op: AllReduce | Nccl | MoeDispatch, sm_version: int) -> tuple[Call, ...]:
    """The collectives that `op` makes, in order; empty where it is free."""
    match op:
        case AllReduce():
            calls = [Call(CUSTOM, op.gpus, op.hidden)]
        case Nccl():
            calls = [Call(op.operation, op.gpus, op.elements_per_token, op.dtype)]
        case MoeDispatch():
            calls = _dispatch(op, sm_version)
    return tuple(call for call in calls if call.gpus > 1)


def _dispatch(op: MoeDispatch, sm_version: int) -> list[Call]:
    """Collectives around the experts; the engines differ."""
    world, dp = op.moe_tp * op.moe_ep, op.attention_dp
    tensor = world // dp
    spread = "all_gather" if op.pre else "reduce_scatter"
    reduce = Call(CUSTOM, world, op.hidden)
    if op.attn_cp > 1:
        if op.is_context:
            return [Call(spread, world, op.hidden)]
        return [] if op.pre else [reduce]
    shared = Call(spread, world, float(op.hidden) * dp)
    if op.backend == "vllm":
        return [reduce] * (tensor > 1) + [shared] * (dp > 1)
    if op.backend == "sglang" and tensor > 1 and dp > 1:
        inner = "reduce_scatter" if op.pre else "all_gather"
        within = Call(inner, tensor, op.hidden)
        return [within, shared]
    if op.backend == "trtllm" and sm_version == 100:
        if dp <= 1:
            return [reduce]
        share = TRTLLM_GATHER_SHARE.get(op.moe_quant, 1.0) if op.pre else 1.0
        return [Call(spread, world, float(op.hidden) * dp * share)]
    if tensor > 1:
        return [reduce]
    return [shared] if dp > 1 else []


def call_ms(tables: PerfTables, call: Call, tokens, *, analytic: bool) -> np.ndarray:
    """Latency of one collective at integer `tokens`, ms.

    Raises MissingPerfDataError when no rank count serves it.
    """
    size = np.asarray(tokens) * float(call.elements)
    spec = tables.spec
    if analytic:
        ring = (call.gpus - 1) / call.gpus
        both_ways = 2.0 if call.kind in (CUSTOM, "all_reduce") else 1.0
        moved = both_ways * COMM_BYTES[call.dtype] * size * ring
        return moved / spec.p2p_bw_bytes_per_s(call.gpus) * MS
    axis, measured = measured_curve(tables, call)
    value = axis.at(size, size, axis.keys[[0, -1]])
    if measured == call.gpus:
        return value
    ring = (call.gpus - 1) / call.gpus * measured / (measured - 1)
    slower = spec.p2p_bw_bytes_per_s(measured) / spec.p2p_bw_bytes_per_s(call.gpus)
    return value * ring * slower


def measured_curve(tables: PerfTables, call: Call) -> tuple[Axis, int]:
    """The size curve that serves `call` and the rank count at which it was measured."""
    per_node = tables.spec.gpus_per_node
    custom = call.kind == CUSTOM and not (per_node >= RACK_NODE_GPUS and call.gpus > 4)
    if custom:
        table = tables.allreduce()
    else:
        kind = "all_reduce" if call.kind == CUSTOM else call.kind
        table = tables.nccl(kind, call.dtype)
    measured = (
        None if table is None else _rank_count(table, call.gpus, per_node, custom)
    )
    if table is None or measured is None:
        have = "none" if table is None else ", ".join(map(str, table.gpus))
        raise MissingPerfDataError(
            f"no measured {call.kind} over {call.gpus} GPUs on {tables.spec.name} "
            f"{tables.backend} {tables.version}; measured rank counts: {have}"
        )
    row = table.latency_ms[np.flatnonzero(table.gpus == measured)[0]]
    return axis_of(table.size, row), measured


def _rank_count(table: CommTable, gpus: int, per_node: int, custom: bool) -> int | None:
    if gpus in table.gpus:
        return gpus
    if custom and gpus <= per_node:
        return None
    below = table.gpus[table.gpus <= gpus]
    if not custom and gpus < table.gpus.max():
        return None
    return int(below.max()) if below.size else None
