"""What a deployment can hold, in words: context that fits, requests, remedies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from aisim_jax._defaults import STEP_TOKENS
from aisim_jax._errors import InvalidInputError, UnsupportedError
from aisim_jax._units import GIB
from aisim_jax.models import Layout, ModelSpec, check_context, load_model
from aisim_jax.systems import resolve_version

from ._arguments import (
    Count,
    Share,
    check_backend,
    check_capacity_override,
    check_count,
    check_counts,
    check_share,
)
from ._blocks import steady_requests
from ._constants import COMPAT, MemoryConstants
from ._rank_loads import RankLoads, rank_loads


_WIDTHS = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class CapacityReport:
    """Memory of one rank and what fits in it. Bytes are not rounded.

    loads: what occupies the rank besides KV
    pool_bytes: bytes for KV, negative when there are none
    kv_bytes_per_token: of one request on this rank
    tokens, blocks: of the pool; `longest_context_tokens` fills all whole blocks
    context_tokens: the context asked for, else the model's own
    context_bytes: KV of one request of that length, whole blocks
    fits: whether one such request fits
    steady_requests, safe_requests: requests of (isl, osl) half-way and at their end;
        None when no lengths were given
    smallest_tp: smallest tp at which the context fits, None if none up to 64 does
    refusal: one sentence with need, room and remedy; None when the context fits
    model_context_tokens: context the checkpoint was made for, 0 if it states none
    caution: why the requests counted cannot run although they fit; None if they can
    """

    model: str
    system: str
    backend: str
    version: str
    layout: Layout
    memory_fraction: float
    max_num_tokens: int
    kv_quant: str
    loads: RankLoads
    pool_bytes: float
    kv_bytes_per_token: float
    block_tokens: int
    tokens: int
    blocks: int
    longest_context_tokens: int
    context_tokens: int
    context_bytes: float
    fits: bool
    steady_requests: int | None
    safe_requests: int | None
    smallest_tp: int | None
    refusal: str | None
    model_context_tokens: int
    caution: str | None

    def as_dict(self) -> dict[str, Any]:
        """Plain values; layout and loads become mappings."""
        record = {name: getattr(self, name) for name in self.__slots__}
        record["layout"] = self.layout.label
        record["loads"] = {
            f"{name}_bytes": getattr(self.loads, name)
            for name in (
                "capacity",
                "weights",
                "activations",
                "other",
                "nccl",
                "reserved",
                "graphs",
            )
        }
        return record


def capacity_report(
    model_path: str,
    system: str,
    backend: str,
    layout: Layout | None = None,
    backend_version: str | None = None,
    *,
    memory_fraction: Share | None = None,
    max_num_tokens: Count = STEP_TOKENS,
    context_length: Count | None = None,
    isl: Count | None = None,
    osl: Count | None = None,
    block_tokens: Count | None = None,
    precision: Mapping[str, str | None] | None = None,
    dcp: Count = 1,
    nextn: Count = 0,
    capacity_bytes: Count | None = None,
    reserved_bytes: Count = 0,
    graph_bytes: Count = 0,
    systems_paths: Sequence[str] = (),
    constants: MemoryConstants = COMPAT,
) -> CapacityReport:
    """Return what one rank holds, and why a context does not fit.

    memory_fraction: of the engine, 0 to 1; None = what applications use
    max_num_tokens: tokens of one forward pass
    context_length: tokens of one request; None = the model's own context
    isl, osl: lengths of the requests to count
    block_tokens: tokens of a KV block; None = the engine's own
    precision: overrides by part (gemm, moe, kv, fmha, comm)
    capacity_bytes, reserved_bytes, graph_bytes: device size, amounts outside the pool

    >>> capacity_report(
    ...     "meta-llama/Meta-Llama-3.1-8B", "h100_sxm", "vllm", context_length=8192
    ... ).fits
    True
    """
    engine = check_backend(backend, constants)
    fraction = (
        engine.application_fraction if memory_fraction is None else memory_fraction
    )
    check_share("memory_fraction", fraction)
    block = engine.application_block_tokens if block_tokens is None else block_tokens
    check_count("block_tokens", block, least=1)
    check_counts(1, context_length=context_length, isl=isl, dcp=dcp)
    check_counts(
        0,
        osl=osl,
        nextn=nextn,
        max_num_tokens=max_num_tokens,
        reserved_bytes=reserved_bytes,
        graph_bytes=graph_bytes,
    )
    check_capacity_override("capacity_bytes", capacity_bytes)
    if (isl is None) != (osl is None):
        raise InvalidInputError(
            f"isl={isl} and osl={osl} count requests only together; give both or none"
        )
    layout = layout or Layout()
    spec = load_model(model_path)
    version = resolve_version(system, backend, backend_version, systems_paths)
    context = spec.context_length if context_length is None else context_length
    check_context(spec, context, f"context_length={context}")
    context_blocks = -(-context // block)

    def loads_at(candidate: Layout) -> RankLoads:
        return rank_loads(
            spec,
            system,
            backend,
            version,
            candidate,
            max_num_tokens=max_num_tokens,
            constants=constants,
            precision=precision,
            dcp=dcp,
            nextn=nextn,
            capacity_bytes=capacity_bytes,
            reserved_bytes=reserved_bytes,
            graph_bytes=graph_bytes,
            systems_paths=systems_paths,
        )

    def holds_context(candidate: Layout) -> bool:
        loads = loads_at(candidate)
        tokens = loads.curve.max_tokens(loads.pool(fraction, constants))
        return tokens // block >= context_blocks

    loads = loads_at(layout)
    pool = loads.pool(fraction, constants)
    tokens = loads.curve.max_tokens(pool)
    blocks = tokens // block
    context_bytes = loads.curve.sequence_bytes(context_blocks * block)
    smallest_tp = smallest_width(spec, layout, holds_context)
    steady = safe = None
    if isl is not None and osl is not None:
        steady = steady_requests(tokens, block, isl, osl)
        safe = blocks // -(-(isl + osl) // block)
    return CapacityReport(
        model=spec.name,
        system=system,
        backend=backend,
        version=version,
        layout=layout,
        memory_fraction=fraction,
        max_num_tokens=max_num_tokens,
        kv_quant=loads.kv_quant,
        loads=loads,
        pool_bytes=pool,
        kv_bytes_per_token=loads.curve.sequence_bytes(1),
        block_tokens=block,
        tokens=tokens,
        blocks=blocks,
        longest_context_tokens=blocks * block,
        context_tokens=context,
        context_bytes=context_bytes,
        fits=blocks >= context_blocks,
        steady_requests=steady,
        safe_requests=safe,
        smallest_tp=smallest_tp,
        model_context_tokens=spec.context_length,
        caution=_caution(spec, isl, osl),
        refusal=None
        if blocks >= context_blocks
        else _refusal(
            context, context_bytes, pool, layout.tp, smallest_tp, blocks * block
        ),
    )


def _caution(spec: ModelSpec, isl: Count | None, osl: Count | None) -> str | None:
    try:
        check_context(spec, (isl or 0) + (osl or 0), f"isl={isl} and osl={osl}")
    except InvalidInputError as error:
        return str(error)
    return None


def smallest_width(
    spec: ModelSpec, layout: Layout, works: Callable[[Layout], bool]
) -> int | None:
    """Return the smallest tp (1, 2, 4, ... 64) at which `works` holds, None if none.

    Expert sizes follow: the size that is already spread grows, else expert parallel.
    """
    for tp in _WIDTHS:
        width = tp * layout.dp * layout.cp
        if not spec.is_moe:
            candidate = replace(layout, tp=tp)
        elif layout.moe_tp > 1 and layout.moe_ep == 1:
            candidate = replace(layout, tp=tp, moe_tp=width)
        else:
            candidate = replace(layout, tp=tp, moe_ep=max(1, width // layout.moe_tp))
        try:
            if works(candidate):
                return tp
        except (InvalidInputError, UnsupportedError):
            continue  # the model cannot run at this width
    return None


def _refusal(
    context: int,
    need_bytes: float,
    pool_bytes: float,
    tp: int,
    smallest_tp: int | None,
    longest: int,
) -> str:
    remedies = [f"tp_size>={smallest_tp}"] if smallest_tp else []
    remedies += [f"context_length<={longest}"] if longest else []
    remedy = " or ".join(remedies) or "a smaller checkpoint, cache type or system"
    room = f"{max(0.0, pool_bytes) / GIB:.1f} GiB is free"
    return (
        f"a {context}-token context needs {need_bytes / GIB:.1f} GiB of KV per GPU, "
        f"{room} at tp_size={tp}; use {remedy}"
    )
