"""KV-cache capacity of one rank of a deployment."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from aisim_jax._errors import (
    AisimError,
    InvalidInputError,
    NoKvBudgetError,
    UnsupportedError,
)
from aisim_jax._units import GIB
from aisim_jax.models import Layout, ModelSpec, load_model

from . import _arguments as arguments
from ._arguments import Count, Share
from ._capacity_record import KvCapacity, MemoryBreakdown, ToleratedCapacity
from ._constants import COMPAT, MemoryConstants
from ._length_curve import KvCurve
from ._naive import naive_loads
from ._rank_loads import RankLoads, rank_loads


_VISION_FAMILIES = frozenset({"KIMIK25"})
_ATTENTION_BACKENDS = ("fa3", "triton", "trtllm_mha", "flashinfer", "fla", "default")


def estimate_kv_cache(
    model_path: str,
    system: str,
    backend: str,
    backend_version: str | None = None,
    *,
    max_num_tokens: Count,
    max_batch_size: Count,
    memory_fraction_kind: str,
    memory_fraction_value: Share,
    tp_size: Count = 1,
    pp_size: Count = 1,
    attention_dp_size: Count = 1,
    moe_tp_size: Count | None = None,
    moe_ep_size: Count | None = None,
    cp_size: Count = 1,
    dcp_size: Count = 1,
    gemm_quant_mode: str | None = None,
    moe_quant_mode: str | None = None,
    kvcache_quant_mode: str | None = None,
    fmha_quant_mode: str | None = None,
    comm_quant_mode: str | None = None,
    moe_backend: str | None = None,
    moe_kernel_source: str | None = None,
    attention_backend: str | None = None,
    enable_eplb: bool = False,
    wideep_num_slots: Count | None = None,
    nextn: Count = 0,
    gpu_memory_capacity_bytes_override: Count | None = None,
    cuda_graph_reserved_bytes: Count = 0,
    reserved_bytes: Count = 0,
    colocated_encoder: bool = False,
    encoder_parallel: str | None = None,
    tolerance_fraction: Share | None = None,
    naive_kv_reservation: Share = 0.80,
    allow_naive_fallback: bool = False,
    fpm_profile: object | None = None,
    context_length: Count | None = None,
    request_occupancy_tokens: Count | None = None,
    systems_paths: Sequence[str] = (),
    constants: MemoryConstants = COMPAT,
) -> KvCapacity:
    """Return the KV-cache capacity of one rank.

    model_path: catalogue name, local directory or config.json
    system, backend, backend_version: where and on what it runs; None = current version
    max_num_tokens: tokens of one forward pass, 0 or more; drives activations
    max_batch_size: requests that run at once (only families with fixed state use it)
    memory_fraction_kind: "of_free" for trtllm, "of_total" for vllm and sglang
    memory_fraction_value: share of memory that the engine may fill, 0 to 1
    *_size: parallel sizes; tp * dp * cp must equal moe_tp * moe_ep for expert models
    *_quant_mode: precision; None = inferred from the checkpoint
    gpu_memory_capacity_bytes_override: replaces the size of the device
    cuda_graph_reserved_bytes, reserved_bytes: fixed amounts outside the pool
    tolerance_fraction: also report the pool shrunk by this share, 0 to below 1
    naive_kv_reservation: pool share of the naive path, 0 to 1
    allow_naive_fallback: estimate from dimensions when the model cannot be built; needs
        an explicit device size

    pool = (capacity - before) * fraction - after, where the loads before and after
    depend on the engine; tokens = floor(pool / bytes per token).

    >>> estimate_kv_cache(
    ...     "meta-llama/Meta-Llama-3.1-8B",
    ...     "h200_sxm",
    ...     "vllm",
    ...     max_num_tokens=8192,
    ...     max_batch_size=256,
    ...     memory_fraction_kind="of_total",
    ...     memory_fraction_value=0.9,
    ... ).total_kv_size_tokens
    882732
    """
    arguments.check_engine(backend, memory_fraction_kind, constants)
    arguments.check_share("memory_fraction_value", memory_fraction_value)
    if tolerance_fraction is not None:
        arguments.check_share("tolerance_fraction", tolerance_fraction, below_one=True)
    arguments.check_share("naive_kv_reservation", naive_kv_reservation)
    arguments.check_count(
        "cuda_graph_reserved_bytes",
        cuda_graph_reserved_bytes,
        least=0,
        most=arguments.LARGEST_BYTES,
    )
    arguments.check_encoder_layout(encoder_parallel)
    arguments.check_counts(0, reserved_bytes=reserved_bytes)
    arguments.check_counts(1, cp_size=cp_size, dcp_size=dcp_size)
    arguments.check_counts(0, nextn=nextn)
    arguments.check_profile_route(fpm_profile, request_occupancy_tokens, context_length)
    arguments.check_counts(
        1,
        tp_size=tp_size,
        pp_size=pp_size,
        attention_dp_size=attention_dp_size,
        moe_tp_size=moe_tp_size,
        moe_ep_size=moe_ep_size,
        wideep_num_slots=wideep_num_slots,
    )
    arguments.check_counts(
        0, max_num_tokens=max_num_tokens, max_batch_size=max_batch_size
    )
    arguments.check_capacity_override(
        "gpu_memory_capacity_bytes_override", gpu_memory_capacity_bytes_override
    )

    spec = load_model(model_path)
    special = {
        "enable_eplb": enable_eplb or None,
        "wideep_num_slots": wideep_num_slots,
        "moe_backend": moe_backend,
        "moe_kernel_source": moe_kernel_source,
    }
    _check_expert_controls(spec, special)
    layout = Layout(
        tp=tp_size,
        pp=pp_size,
        dp=attention_dp_size,
        moe_tp=moe_tp_size or 1,
        moe_ep=moe_ep_size or 1,
        cp=cp_size,
    )
    special |= {
        "attention_backend": attention_backend,
        "colocated_encoder": colocated_encoder or None,
        "reserved_bytes": reserved_bytes or None,
    }
    try:
        _check_built(spec, special)
        loads = rank_loads(
            spec,
            system,
            backend,
            backend_version,
            layout,
            max_num_tokens=max_num_tokens,
            constants=constants,
            precision={
                "gemm": gemm_quant_mode,
                "moe": moe_quant_mode,
                "kv": kvcache_quant_mode,
                "fmha": fmha_quant_mode,
                "comm": comm_quant_mode,
            },
            dcp=dcp_size,
            nextn=nextn,
            capacity_bytes=gpu_memory_capacity_bytes_override,
            reserved_bytes=reserved_bytes,
            graph_bytes=cuda_graph_reserved_bytes,
            systems_paths=systems_paths,
        )
    except AisimError as build_error:
        if not allow_naive_fallback:
            raise
        _check_naive(
            build_error,
            special,
            layout.cp * dcp_size,
            gpu_memory_capacity_bytes_override,
        )
        return _naive_capacity(
            spec,
            layout,
            float(gpu_memory_capacity_bytes_override or 0),
            cuda_graph_reserved_bytes,
            naive_kv_reservation,
            tolerance_fraction,
        )
    pool = loads.pool(memory_fraction_value, constants)
    if pool <= 0:
        raise NoKvBudgetError(_no_budget(spec, loads, memory_fraction_value, pool))
    return _capacity(loads, pool, tolerance_fraction)


def _capacity(
    loads: RankLoads, pool: float, tolerance_fraction: float | None
) -> KvCapacity:
    return KvCapacity(
        total_gpu_capacity_bytes=math.floor(loads.capacity),
        total_kv_size_bytes=math.floor(pool),
        kv_size_per_token_bytes=math.floor(loads.curve.sequence_bytes(1)),
        total_kv_size_tokens=loads.curve.max_tokens(pool),
        kvcache_quant_mode=loads.kv_quant,
        source="native",
        memory_breakdown=MemoryBreakdown(
            weights_bytes=math.floor(loads.weights),
            activations_bytes=math.floor(loads.activations),
            runtime_overhead_bytes=math.floor(loads.other),
            comm_overhead_bytes=math.floor(loads.nccl),
            reserved_bytes=math.floor(loads.reserved),
            cuda_graph_reserved_bytes=math.floor(loads.graphs),
        ),
        tolerance_adjusted=_tolerated(loads.curve, pool, tolerance_fraction),
    )


def _naive_capacity(
    spec: ModelSpec,
    layout: Layout,
    capacity_bytes: float,
    graph_bytes: int,
    reservation: float,
    tolerance_fraction: float | None,
) -> KvCapacity:
    naive = naive_loads(spec, layout)
    pool = max(capacity_bytes - naive.weights_bytes - graph_bytes, 0.0) * reservation
    if pool <= 0:
        raise NoKvBudgetError(
            f"{spec.name}: weights need about {naive.weights_bytes / GIB:.1f} GiB per "
            f"rank and {graph_bytes / GIB:.1f} GiB are reserved, but the device has "
            f"{capacity_bytes / GIB:.1f} GiB; use a larger tp_size or pp_size"
        )
    curve = KvCurve(naive.kv_bytes_per_token)
    return KvCapacity(
        total_gpu_capacity_bytes=math.floor(capacity_bytes),
        total_kv_size_bytes=math.floor(pool),
        kv_size_per_token_bytes=naive.kv_bytes_per_token,
        total_kv_size_tokens=curve.max_tokens(pool),
        kvcache_quant_mode=None,
        source="naive_fallback",
        memory_breakdown=None,
        tolerance_adjusted=_tolerated(curve, pool, tolerance_fraction),
    )


def _tolerated(
    curve: KvCurve, pool: float, tolerance_fraction: float | None
) -> ToleratedCapacity | None:
    if tolerance_fraction is None:
        return None
    shrunk = math.floor(math.floor(pool) * (1.0 - tolerance_fraction))
    return ToleratedCapacity(tolerance_fraction, shrunk, curve.max_tokens(shrunk))


def _check_expert_controls(spec: ModelSpec, controls: Mapping[str, object]) -> None:
    given = [name for name, value in controls.items() if value is not None]
    if given and not spec.is_moe:
        raise InvalidInputError(
            f"{', '.join(given)}: {spec.name} has no experts; omit it, or choose a "
            "model with experts"
        )


def _check_built(spec: ModelSpec, special: Mapping[str, object]) -> None:
    unbuilt = [
        name
        for name in (
            "enable_eplb",
            "wideep_num_slots",
            "moe_backend",
            "moe_kernel_source",
        )
        if special[name] is not None
    ]
    if special["colocated_encoder"] and spec.family in _VISION_FAMILIES:
        unbuilt.append("colocated_encoder")
    if unbuilt:
        raise UnsupportedError(
            f"{', '.join(unbuilt)}: its memory for {spec.name} is not built; omit it"
        )
    backend = special["attention_backend"]
    if backend is not None and backend not in _ATTENTION_BACKENDS:
        raise InvalidInputError(
            f"attention_backend {backend!r} is unknown; use one of "
            f"{', '.join(_ATTENTION_BACKENDS)}"
        )


def _check_naive(
    build_error: AisimError,
    special: Mapping[str, object],
    context_parallel: int,
    capacity_override: int | None,
) -> None:
    """The naive path knows only dimensions: refuse what it would silently ignore."""
    if context_parallel > 1 or any(value is not None for value in special.values()):
        raise build_error
    if capacity_override is None:
        raise InvalidInputError(
            "the naive estimate needs gpu_memory_capacity_bytes_override, the bytes of "
            f"one device; it was tried because {build_error}"
        ) from build_error


def _no_budget(spec: ModelSpec, loads: RankLoads, fraction: float, pool: float) -> str:
    fixed = loads.activations + loads.other + loads.nccl + loads.reserved + loads.graphs
    return (
        f"{spec.name}: weights {loads.weights / GIB:.1f} GiB and other loads "
        f"{fixed / GIB:.1f} GiB leave no KV budget on {loads.capacity / GIB:.1f} GiB at "
        f"memory fraction {fraction} ({-pool / GIB:.1f} GiB short); use a larger "
        "tp_size or pp_size, fewer max_num_tokens or a larger fraction"
    )
