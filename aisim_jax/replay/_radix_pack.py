"""One SGLang scenario as padded arrays for the radix engine."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from ..kernels.replay import (
    RadixEngine,
    RadixLane,
    RadixLoad,
    RadixShape,
    RoleSteps,
    SglangLimits,
    Transfer,
)
from ..traffic import Workload
from ._admissible import SGLANG_CHUNK_TOKENS, SGLANG_RESERVE_TOKENS, cut_outputs
from ._deployment import Deployment, Role


RATIO_INITIAL = 0.7
RATIO_FLOOR = 0.14 * RATIO_INITIAL
SGLANG_LIMITS = SglangLimits(
    chunked_prefill_tokens=np.int32(SGLANG_CHUNK_TOKENS),
    max_prefill_tokens=np.int32(16384),
    clip_tokens=np.int32(SGLANG_RESERVE_TOKENS),
    ratio_initial=np.float64(RATIO_INITIAL),
    ratio_floor=np.float64(RATIO_FLOOR),
    ratio_decay=np.float64((RATIO_INITIAL - RATIO_FLOOR) / 600),
    retract_tokens=np.int32(20),
    retries=np.int32(1024),
)


class Packed(NamedTuple):
    """A lane and its static sizes."""

    shape: RadixShape
    lane: RadixLane


def bucket(count: int, least: int = 1) -> int:
    """The next power of two."""
    return max(least, 1 << max(count - 1, 0).bit_length())


def pack(
    workload: Workload, deployment: Deployment, limits: SglangLimits, *, log: bool
) -> Packed:
    """The scenario with the smallest level that may be exact, and likely capacities."""
    role, source, size = deployment.decode, deployment.prefill, workload.size
    half = bucket(size, 32)
    pools = [role] if source is None else [role, source]
    reqs = half * len(pools)
    shares = any(pool.prefix_caching for pool in pools) and workload.contents.shares()
    load = _load(workload, deployment, half, shares)
    stage = workload.tokenizer
    shape = RadixShape(
        reqs=reqs,
        slots=bucket(min(max(pool.max_sequences for pool in pools), size), 8),
        workers=role.workers,
        ranks=role.ranks,
        nodes=likely_nodes(workload, deployment) if shares else 0,
        pages=load.ids.size if shares else 0,
        servers=0 if stage is None else bucket(stage.workers),
        passes=4 * reqs if log else 0,
        admissions=2 * reqs if log else 0,
        joins=4 * reqs if log else 0,
    )
    engine = _limits(workload, role, limits)
    if source is None:
        return Packed(shape, RadixLane(load, engine, role.steps))
    shape = shape._replace(
        prefill_workers=source.workers, prefill_ranks=source.ranks, actions=2 * reqs
    )
    steps = RoleSteps(source.steps, role.steps)
    from_prefill = _limits(workload, source, limits)
    transfer = _transfer(deployment)
    return Packed(shape, RadixLane(load, engine, steps, from_prefill, transfer))


def _limits(workload: Workload, role: Role, limits: SglangLimits) -> RadixEngine:
    stage, until = workload.tokenizer, workload.max_virtual_time_ms
    return RadixEngine(
        page=np.int32(role.block_size),
        pages=np.int32(role.num_blocks),
        slots=np.int32(role.max_sequences),
        interval=np.int32(role.prefill_decode_interval),
        caching=np.bool_(role.prefix_caching),
        ready_ms=np.float64(role.startup_ms),
        cap_ms=np.float64(np.inf if until is None else until),
        servers=np.int32(0 if stage is None else stage.workers),
        service_base_ms=np.float64(0 if stage is None else stage.base_ms),
        service_us_per_token=np.float64(
            0 if stage is None else stage.per_input_token_us
        ),
        giga=np.float64(1e9),
        limits=limits,
    )


def _transfer(deployment: Deployment) -> Transfer:
    transfer = deployment.transfer
    rate = transfer.bandwidth_gb_per_s
    timed = bool(rate) and transfer.bytes_per_token > 0
    return Transfer(
        bytes_per_token=np.float64(transfer.bytes_per_token if timed else 0),
        bytes_per_s=np.float64(rate * 1e9 if timed and rate else 1),
        full_prompt=np.bool_(transfer.full_prompt),
        latency_ms=np.float64(transfer.latency_ms),
    )


def likely_nodes(workload: Workload, deployment: Deployment) -> int:
    """Room for a tree of the sequences that the pools hold, each cut once or twice."""
    tokens = workload.isl_tokens.astype(np.int64) + workload.osl_tokens
    mean_tokens = max(int(tokens.mean()), 1)
    nodes = 0
    for role in (deployment.decode, deployment.prefill):
        if role is not None:
            ranks = role.workers * role.ranks
            resident = role.num_blocks * role.block_size // mean_tokens
            resident = min(2 * resident + role.max_sequences, workload.size)
            nodes += ranks + 4 * ranks * resident
    return bucket(nodes, 128)


def _load(
    workload: Workload, deployment: Deployment, half: int, shares: bool
) -> RadixLoad:
    """One row a request; with a prefill pool a second one, asked for one token."""
    size, role, source = workload.size, deployment.decode, deployment.prefill
    isl = workload.isl_tokens.astype(np.int64)
    osl = cut_outputs(isl, workload.osl_tokens.astype(np.int64), deployment)
    limit = role.max_model_len
    rejected = np.zeros(size, bool) if limit is None else isl >= limit
    follow, first = _turns(workload)
    closed = workload.max_in_flight is not None
    order = first
    if not closed:
        order = first[np.argsort(workload.arrival_ms[first], kind="stable")]
    pools = [role] if source is None else [role, source]

    def padded(values: np.ndarray, dtype: type, fill: float = 0) -> np.ndarray:
        out = np.full(half * len(pools), fill, dtype)
        out[: values.size] = values
        return out

    ids, starts = [np.zeros(1, np.int32)], [padded(np.zeros(0), np.int32)]
    if shares:
        keys = [
            workload.contents.block_keys(
                workload.isl_tokens, workload.osl_tokens, pool.block_size
            )
            for pool in pools
        ]
        ids = [one.ids for one in keys]
        before = np.cumsum([0, *(one.size for one in ids)])
        starts = [
            np.pad(start + one.start[:-1], (0, half - size))
            for start, one in zip(before, keys, strict=False)
        ]
    spelt = np.concatenate(ids).astype(np.int32)
    if shares:
        spelt = np.pad(spelt, (0, bucket(spelt.size, 2048) - spelt.size))
    whole_isl, whole_osl = padded(isl, np.int32), padded(osl, np.int32)
    if source is not None:
        whole_isl[half : half + size] = isl
        whole_osl[half : half + size] = np.minimum(osl, 1)
    return RadixLoad(
        isl=whole_isl,
        osl=whole_osl,
        rejected=padded(rejected, np.bool_),
        follow=padded(follow, np.int32, -1),
        delay_ms=padded(workload.delay_ms, np.float64),
        order=padded(order, np.int32),
        order_ms=padded(
            np.zeros(0) if closed else workload.arrival_ms[order], np.float64
        ),
        sessions=np.int32(first.size),
        in_flight=np.int32(workload.max_in_flight or 0),
        ids=spelt,
        start=np.concatenate(starts).astype(np.int32),
    )


def _turns(
    workload: Workload,
) -> tuple[Int[np.ndarray, " reqs"], Int[np.ndarray, " sessions"]]:
    """(next turn of every request or -1, first turns in order of appearance)."""
    follow = np.full(workload.size, -1)
    rows = np.lexsort((workload.turn, workload.session))
    same = workload.session[rows][1:] == workload.session[rows][:-1]
    follow[rows[:-1][same]] = rows[1:][same]
    first = rows[np.concatenate([[True], ~same])] if workload.size else rows
    _, appears = np.unique(workload.session, return_index=True)
    return follow, first[np.argsort(appears, kind="stable")]
