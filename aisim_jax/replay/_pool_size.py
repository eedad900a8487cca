"""How many KV blocks a rank of a role has."""

from __future__ import annotations

from typing import NamedTuple

from .._errors import NoKvBudgetError
from ..config import ForwardPassConfig, WorkerPrediction
from ..memory import COMPAT, KvCapacity, estimate_kv_cache, kv_curve
from ..models import load_model
from ._resolved import role_cache_mode


class PoolSize(NamedTuple):
    """Blocks of one rank, and the estimate that they come from (None where given)."""

    blocks: int
    capacity: KvCapacity | None


def pool_size(record: ForwardPassConfig, worker: WorkerPrediction) -> PoolSize:
    """Blocks of one rank: as given, from given bytes, or from the memory that is left.

    blocks = floor(tokens / block size); bytes hold floor(bytes / (bytes per token *
    block size)) blocks.
    """
    cache = worker.kv_cache
    block_tokens = cache.block_size
    assert block_tokens is not None  # filled in by resolve_prediction
    given = cache.capacity
    if given.type == "fixed":
        if given.bytes is None:
            assert given.blocks is not None  # one of the two, says the record
            return PoolSize(given.blocks, None)
        each = cache.bytes_per_token
        if each == "auto":
            each = kv_bytes_per_token(record)
        return _some(PoolSize(given.bytes // (each * block_tokens), None), block_tokens)
    assert given.memory_fraction is not None  # filled in by resolve_prediction
    capacity = estimate_kv_cache(
        record.model,
        record.system,
        record.backend,
        record.backend_version,
        max_num_tokens=worker.scheduler.max_batched_tokens,
        max_batch_size=worker.scheduler.max_sequences,
        memory_fraction_kind=COMPAT.engines[record.backend].fraction_kind,
        memory_fraction_value=given.memory_fraction,
        tp_size=record.tp,
        pp_size=record.pp,
        attention_dp_size=record.attention_dp,
        moe_tp_size=record.moe_tp_size,
        moe_ep_size=record.moe_ep_size,
        cp_size=record.cp_size or 1,
        dcp_size=record.dcp or 1,
        gemm_quant_mode=record.gemm_quant_mode,
        moe_quant_mode=record.moe_quant_mode,
        kvcache_quant_mode=record.kvcache_quant_mode,
        fmha_quant_mode=record.fmha_quant_mode,
        comm_quant_mode=record.comm_quant_mode,
        moe_backend=record.moe_backend,
        moe_kernel_source=record.moe_kernel_source,
        attention_backend=record.attention_backend,
        enable_eplb=record.enable_eplb,
        wideep_num_slots=record.wideep_num_slots,
        nextn=record.nextn,
        cuda_graph_reserved_bytes=given.cuda_graph_reserved_bytes,
        systems_paths=record.systems_paths,
    )
    blocks = capacity.total_kv_size_tokens // block_tokens
    return _some(PoolSize(blocks, capacity), block_tokens)


def kv_bytes_per_token(record: ForwardPassConfig, *, assumed: str | None = None) -> int:
    """KV bytes of one token on one rank.

    assumed: cache type where the configuration names none; None = the checkpoint's.
    """
    mode = role_cache_mode(record, assumed=assumed)
    spec = load_model(record.model)
    return kv_curve(
        spec, mode, record.tp, record.backend, record.dcp or 1
    ).bytes_per_token


def _some(size: PoolSize, block_tokens: int) -> PoolSize:
    if size.blocks < 1:
        raise NoKvBudgetError(
            f"the KV cache holds less than one block of {block_tokens} tokens; use a "
            "larger tensor size, a smaller kv_cache.block_size or a larger capacity"
        )
    return size
