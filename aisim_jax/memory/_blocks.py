"""Token capacities as schedulers count them: blocks, prunable shapes, request counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from aisim_jax._defaults import STEP_TOKENS
from aisim_jax._errors import InvalidInputError, NoKvBudgetError, UnsupportedError
from aisim_jax.models import Layout, check_layout, load_model, resolve_precision
from aisim_jax.systems import load_system, resolve_version

from ._arguments import Count, Share, check_backend, check_count
from ._capacity import estimate_kv_cache
from ._constants import COMPAT, MemoryConstants


DEFAULT_SYSTEM = "h200_sxm"

_PRUNING_BATCH = 256
_PRUNING_FRACTION = 0.9


def estimate_num_gpu_blocks(
    model_path: str,
    system: str,
    backend: str,
    backend_version: str | None = None,
    *,
    scheduler_block_size: Count,
    **arguments: Any,
) -> int:
    """Return the KV blocks of one rank: floor(tokens / scheduler_block_size).

    scheduler_block_size: tokens of one block, 1 or more
    arguments: of `estimate_kv_cache`; with a tolerance_fraction the shrunk pool counts
    """
    check_count("scheduler_block_size", scheduler_block_size, least=1)
    capacity = estimate_kv_cache(
        model_path, system, backend, backend_version, **arguments
    )
    shrunk = capacity.tolerance_adjusted
    tokens = capacity if shrunk is None else shrunk
    return tokens.total_kv_size_tokens // scheduler_block_size


def scheduler_num_blocks(
    model_path: str,
    backend: str,
    *,
    system: str = DEFAULT_SYSTEM,
    backend_version: str | None = None,
    block_size: Count | None = None,
    gpu_memory_utilization: Share | None = None,
    max_num_batched_tokens: Count = STEP_TOKENS,
    max_num_seqs: Count = 1,
    cuda_graph_reserved_bytes: Count = 0,
    gemm_dtype: str | None = None,
    moe_dtype: str | None = None,
    kv_cache_dtype: str | None = None,
    nextn: Count = 0,
    num_gpu_blocks: Count | None = None,
    systems_paths: Sequence[str] = (),
    constants: MemoryConstants = COMPAT,
    **sizes: Count | None,
) -> int:
    """Return the KV blocks that an application configures for one rank.

    block_size: tokens of one block; None = the engine's own
    gpu_memory_utilization: memory fraction; None = the engine's own
    *_dtype: precision; None, "", "auto", "none" and "null" are inferred
    num_gpu_blocks: a fixed count, which skips the estimate
    sizes: parallel sizes of `estimate_kv_cache`
    """
    engine = check_backend(backend, constants)
    block = engine.application_block_tokens if block_size is None else block_size
    check_count("block_size", block, least=1)
    if num_gpu_blocks is not None:
        check_count("num_gpu_blocks", num_gpu_blocks, least=1)
        return num_gpu_blocks
    check_count("nextn", nextn, least=0)
    if nextn:
        raise UnsupportedError(
            f"nextn={nextn}: drafting needs a measured resource profile, which is not "
            "built; use nextn=0"
        )
    return estimate_num_gpu_blocks(
        model_path,
        system,
        backend,
        backend_version,
        scheduler_block_size=block,
        max_num_tokens=max_num_batched_tokens,
        max_batch_size=max_num_seqs,
        memory_fraction_kind=engine.fraction_kind,
        memory_fraction_value=engine.application_fraction
        if gpu_memory_utilization is None
        else gpu_memory_utilization,
        cuda_graph_reserved_bytes=cuda_graph_reserved_bytes,
        gemm_quant_mode=gemm_dtype,
        moe_quant_mode=moe_dtype,
        kvcache_quant_mode=kv_cache_dtype,
        systems_paths=systems_paths,
        constants=constants,
        **sizes,
    )


def shape_tokens(
    model_path: str,
    system: str,
    backend: str,
    layout: Layout,
    backend_version: str | None = None,
    *,
    systems_paths: Sequence[str] = (),
    constants: MemoryConstants = COMPAT,
) -> int | None:
    """Return the token capacity by which a search prunes `layout`; None drops it.

    8192 tokens a pass, 256 requests, fraction 0.9. A shape is dropped when nothing is
    left for KV or block-quantised experts cannot be split that far; a tp that does not
    divide the heads is an error. Feasible means strictly more than the longest request.
    """
    engine = check_backend(backend, constants)
    spec = load_model(model_path)
    version = resolve_version(system, backend, backend_version, systems_paths)
    device = load_system(system, systems_paths)
    modes = resolve_precision(spec, backend, version, device.sm_version)
    try:
        check_layout(spec, modes, layout, engine.name, 0)
    except InvalidInputError:
        # An error unless only the quantisation of the experts forbids the split.
        check_layout(spec, replace(modes, moe="bfloat16"), layout, backend, 0)
        return None
    try:
        return estimate_kv_cache(
            model_path,
            system,
            backend,
            backend_version,
            max_num_tokens=STEP_TOKENS,
            max_batch_size=_PRUNING_BATCH,
            memory_fraction_kind=engine.fraction_kind,
            memory_fraction_value=_PRUNING_FRACTION,
            tp_size=layout.tp,
            pp_size=layout.pp,
            attention_dp_size=layout.dp,
            moe_tp_size=layout.moe_tp,
            moe_ep_size=layout.moe_ep,
            cp_size=layout.cp,
            systems_paths=systems_paths,
            constants=constants,
        ).total_kv_size_tokens
    except NoKvBudgetError:
        return None


def steady_requests(
    rank_tokens: int, block_tokens: int, isl: int, osl: int, *, ranks: int = 1
) -> int:
    """Return how many requests of (isl, osl) a role holds half-way through decoding.

    floor(floor(rank_tokens / block) * block * ranks / (isl + floor(osl / 2)))
    ranks: attention-DP size times replicas
    """
    role_tokens = rank_tokens // block_tokens * block_tokens * ranks
    return role_tokens // (isl + osl // 2)


def load_concurrency(kv_load_ratio: float, requests: int) -> int:
    """Return the concurrency that fills `kv_load_ratio` of a capacity of `requests`.

    max(1, floor(ratio * requests)); a capacity below one request is an error.
    """
    if requests < 1:
        raise InvalidInputError(
            "kv_load_ratio: the KV cache holds less than one request; use a larger "
            "tp_size, a smaller cache type or shorter requests"
        )
    return max(1, int(kv_load_ratio * requests))
