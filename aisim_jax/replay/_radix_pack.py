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
    SglangLimits,
)
from ..traffic import Workload
from ._admissible import SGLANG_CHUNK_TOKENS, SGLANG_RESERVE_TOKENS, cut_outputs
from ._deployment import Deployment


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
    role, size = deployment.decode, workload.size
    reqs = bucket(size, 32)
    shares = role.prefix_caching and workload.contents.shares()
    load = _load(workload, deployment, reqs, shares)
    stage, until = workload.tokenizer, workload.max_virtual_time_ms
    engine = RadixEngine(
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
    shape = RadixShape(
        reqs=reqs,
        slots=bucket(min(role.max_sequences, size), 8),
        workers=role.workers,
        ranks=role.ranks,
        nodes=likely_nodes(workload, deployment) if shares else 0,
        pages=load.ids.size if shares else 0,
        servers=0 if stage is None else bucket(stage.workers),
        passes=4 * reqs if log else 0,
        admissions=2 * reqs if log else 0,
        joins=4 * reqs if log else 0,
    )
    return Packed(shape, RadixLane(load, engine, role.steps))


def likely_nodes(workload: Workload, deployment: Deployment) -> int:
    """Room for a tree of the sequences that the pools hold, each cut once or twice."""
    role = deployment.decode
    ranks = role.workers * role.ranks
    tokens = workload.isl_tokens.astype(np.int64) + workload.osl_tokens
    resident = role.num_blocks * role.block_size // max(int(tokens.mean()), 1)
    resident = ranks * min(2 * resident + role.max_sequences, workload.size)
    return bucket(ranks + 4 * resident, 128)


def _load(
    workload: Workload, deployment: Deployment, reqs: int, shares: bool
) -> RadixLoad:
    size, role = workload.size, deployment.decode
    isl = workload.isl_tokens.astype(np.int64)
    osl = cut_outputs(isl, workload.osl_tokens.astype(np.int64), deployment)
    limit = role.max_model_len
    rejected = np.zeros(size, bool) if limit is None else isl >= limit
    follow, first = _turns(workload)
    closed = workload.max_in_flight is not None
    order = first
    if not closed:
        order = first[np.argsort(workload.arrival_ms[first], kind="stable")]
    ids, start = np.zeros(1, np.int32), np.zeros(size, np.int32)
    if shares:
        keys = workload.contents.block_keys(
            workload.isl_tokens, workload.osl_tokens, role.block_size
        )
        ids = np.zeros(bucket(keys.ids.size, 2048), np.int32)
        ids[: keys.ids.size] = keys.ids
        start = keys.start[:-1].astype(np.int32)

    def padded(values: np.ndarray, dtype: type, fill: float = 0) -> np.ndarray:
        out = np.full(reqs, fill, dtype)
        out[: values.size] = values
        return out

    return RadixLoad(
        isl=padded(isl, np.int32),
        osl=padded(osl, np.int32),
        rejected=padded(rejected, np.bool_),
        follow=padded(follow, np.int32, -1),
        delay_ms=padded(workload.delay_ms, np.float64),
        order=padded(order, np.int32),
        order_ms=padded(
            np.zeros(0) if closed else workload.arrival_ms[order], np.float64
        ),
        sessions=np.int32(first.size),
        in_flight=np.int32(workload.max_in_flight or 0),
        ids=ids,
        start=padded(start, np.int32),
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
