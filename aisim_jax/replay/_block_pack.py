"""One scenario as the arrays of the block engine, padded to bucket sizes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from ..kernels.replay import BlockLane, BlockShape
from ..kernels.replay._block_state import (
    NO_LIMIT,
    Jobs,
    Places,
    PoolLimits,
    Traffic,
    TransferCost,
)
from ..traffic import Workload
from ._block_draws import uniforms
from ._deployment import Deployment, Policy, Role


class Packed(NamedTuple):
    """A lane, its static shape, and where every request's tokens start in the log."""

    lane: BlockLane
    shape: BlockShape
    first_token: Int[np.ndarray, " reqs_and_one"]


def _scalar(kind: type, value: float) -> np.ndarray:
    return np.array(value, kind)


def bucket(count: int, least: int = 1) -> int:
    """The next power of two."""
    return max(least, 1 << max(int(count) - 1, 0).bit_length())


def roles_of(deployment: Deployment) -> tuple[Role, ...]:
    """The pools in order: prefill before decode."""
    if deployment.prefill is None:
        return (deployment.decode,)
    return deployment.prefill, deployment.decode


def pack(workload: Workload, deployment: Deployment, log: bool, draws: int) -> Packed:
    """Arrays of a scenario; `draws` uniform numbers a rank where speculation is on."""
    roles = roles_of(deployment)
    size = workload.size
    reqs = bucket(size, 128)
    isl = workload.isl_tokens.astype(np.int64)
    target, wants = _targets(workload, deployment, roles)
    drafts = max(len(role.acceptance) for role in roles)
    caching = any(role.prefix_caching for role in roles)
    at_once = min(size, workload.max_in_flight or size)
    workers = sum(role.workers for role in roles)
    ranks = sum(role.workers * role.ranks for role in roles)
    first_token = np.concatenate([[0], np.cumsum(target[-1] - isl)])
    rows, first_row, keys, ids = 1, np.zeros((len(roles), size), np.int64), None, 1
    if caching:
        first_row, keys, ids = _rows(workload, roles, drafts)
        rows = keys.size
    shape = BlockShape(
        pools=len(roles),
        workers=bucket(workers, 4),
        ranks=bucket(ranks, 4),
        slots=bucket(min(max(role.max_sequences for role in roles), at_once), 64),
        reqs=reqs,
        blocks=bucket(max(role.num_blocks for role in roles), 1024) if caching else 0,
        rows=bucket(rows, 8192),
        ids=bucket(ids, 8192) if caching else 1,
        guaranteed=deployment.policy == "trtllm",
        servers=bucket(workload.tokenizer.workers, 4) if workload.tokenizer else 0,
        drafts=drafts,
        draws=draws if drafts else 1,
        actions=4 * reqs if len(roles) > 1 else 1,
        passes=4 * reqs if log else 0,
        tokens=bucket(int(first_token[-1]), 8192) if log else 0,
        admissions=2 * reqs if log else 0,
    )
    pad = reqs - size

    def padded(values: Any, value: int = 0) -> np.ndarray:
        return np.pad(
            values, [(0, 0)] * (values.ndim - 1) + [(0, pad)], constant_values=value
        )

    jobs = Jobs(
        target=padded(target).reshape(-1).astype(np.int32),
        wants=padded(wants).reshape(-1).astype(np.int32),
        first_row=padded(first_row).reshape(-1).astype(np.int32),
        first_token=padded(first_token[:-1]).astype(np.int32),
        keys=np.zeros(shape.rows, np.int32)
        if keys is None
        else np.pad(keys.astype(np.int32), (0, shape.rows - rows)),
    )
    lane = BlockLane(
        limits=_limits(roles, drafts),
        places=_places(roles, shape),
        traffic=_traffic(workload, reqs),
        jobs=jobs,
        transfer=_transfer(deployment),
        draws=_draws(roles, shape),
        steps=tuple(role.steps for role in roles),
    )
    return Packed(lane, shape, first_token)


def _targets(
    workload: Workload, deployment: Deployment, roles: tuple[Role, ...]
) -> tuple[Int[np.ndarray, "pools reqs"], Bool[np.ndarray, "pools reqs"]]:
    """Length at completion in each pool, and whether output was granted."""
    isl = workload.isl_tokens.astype(np.int64)
    target, wants = [], []
    for pool, role in enumerate(roles):
        osl = workload.osl_tokens.astype(np.int64)
        if len(roles) > 1 and pool == 0:
            osl = np.minimum(osl, 1)
        osl = _granted(deployment.policy, role, isl, osl)
        wants.append(workload.osl_tokens > 0)
        if role.max_model_len is not None:
            osl = np.clip(role.max_model_len - isl, 0, osl)
        target.append(isl + osl)
    return np.stack(target), np.stack(wants)


def _granted(
    policy: Policy,
    role: Role,
    isl: Int[np.ndarray, " reqs"],
    osl: Int[np.ndarray, " reqs"],
) -> Int[np.ndarray, " reqs"]:
    """Output that a TensorRT-LLM engine grants at submission."""
    if policy != "trtllm":
        return osl
    tokens = role.num_blocks * role.block_size
    osl = np.where(isl < tokens, np.minimum(osl, tokens - isl), osl)
    if role.max_model_len is not None:
        osl = np.minimum(osl, np.maximum(role.max_model_len - isl, 0))
    return osl


def _rows(
    workload: Workload, roles: tuple[Role, ...], drafts: int
) -> tuple[Int[np.ndarray, "pools reqs"], Int[np.ndarray, " rows"], int]:
    """Place of every job's blocks in one table, its content ids, how many there are."""
    isl, osl = workload.isl_tokens, workload.osl_tokens
    starts, tables, used, distinct = [], [], 0, 1
    for role in roles:
        size = role.block_size
        keys = workload.contents.block_keys(isl, osl, size)
        full = np.diff(keys.start)
        room = -(-(isl.astype(np.int64) + osl + drafts + 1) // size) + 1
        start = np.concatenate([[0], np.cumsum(room)])
        table = np.zeros(int(start[-1]), np.int64)
        inside = np.arange(keys.ids.size) - np.repeat(keys.start[:-1], full)
        table[np.repeat(start[:-1], full) + inside] = keys.ids
        starts.append(used + start[:-1])
        tables.append(table)
        used += table.size
        distinct = max(distinct, keys.distinct)
    return np.stack(starts), np.concatenate(tables), distinct


def _limits(roles: tuple[Role, ...], drafts: int) -> PoolLimits:
    def each(value: Any) -> np.ndarray:
        return np.array([value(role) for role in roles], np.int32)

    workers = each(lambda role: role.workers)
    ranks = each(lambda role: role.ranks)
    acceptance = np.zeros((len(roles), max(drafts, 1)))
    for pool, role in enumerate(roles):
        acceptance[pool, : len(role.acceptance)] = role.acceptance
    return PoolLimits(
        workers=workers,
        ranks=ranks,
        first_worker=np.cumsum(workers, dtype=np.int32) - workers,
        first_rank=np.cumsum(workers * ranks, dtype=np.int32) - workers * ranks,
        budget=each(lambda role: role.max_batched_tokens),
        sequences=each(lambda role: role.max_sequences),
        block_size=each(lambda role: role.block_size),
        blocks=each(lambda role: role.num_blocks),
        max_model_len=each(
            lambda role: NO_LIMIT if role.max_model_len is None else role.max_model_len
        ),
        chunked=each(lambda role: role.chunked_prefill),
        caching=each(lambda role: role.prefix_caching),
        interval=each(lambda role: role.prefill_schedule_interval),
        oldest_first=each(lambda role: role.preemption == "fifo"),
        startup_ms=np.array([role.startup_ms for role in roles], np.float64),
        drafts=each(lambda role: len(role.acceptance)),
        acceptance=acceptance,
    )


def _places(roles: tuple[Role, ...], shape: BlockShape) -> Places:
    pool_of_worker = np.repeat(np.arange(len(roles)), [role.workers for role in roles])
    per_worker = np.array([role.ranks for role in roles])[pool_of_worker]
    first_rank = np.cumsum(per_worker) - per_worker
    worker_of_rank = np.repeat(np.arange(pool_of_worker.size), per_worker)

    def padded(values: np.ndarray, room: int) -> np.ndarray:
        return np.pad(values, (0, room - values.size)).astype(np.int32)

    return Places(
        pool_of_worker=padded(pool_of_worker, shape.workers),
        pool_of_rank=padded(pool_of_worker[worker_of_rank], shape.ranks),
        worker_of_rank=padded(worker_of_rank, shape.ranks),
        first_rank=padded(first_rank, shape.workers),
        workers=_scalar(np.int32, pool_of_worker.size),
    )


def _traffic(workload: Workload, reqs: int) -> Traffic:
    size, pad = workload.size, (0, reqs - workload.size)
    session = workload.session.astype(np.int64)
    order = np.lexsort([workload.turn, session])
    same = session[order][1:] == session[order][:-1]
    following = np.full(size, -1)
    following[order[:-1][same]] = order[1:][same]
    heads = order[np.concatenate([[True], ~same])]
    if workload.max_in_flight is None:
        heads = heads[np.lexsort([session[heads], workload.arrival_ms[heads]])]
        arrival = workload.arrival_ms[heads].astype(np.float64)
    else:
        _, appears = np.unique(session, return_index=True)
        heads = heads[np.argsort(appears)]
        arrival = np.zeros(heads.size)
    stage = workload.tokenizer
    service = np.zeros(size)
    if stage is not None:
        service = (
            stage.base_ms + workload.isl_tokens * stage.per_input_token_us / 1000.0
        )
    until = workload.max_virtual_time_ms
    rest = (0, reqs - heads.size)
    return Traffic(
        isl=np.pad(workload.isl_tokens.astype(np.int32), pad, constant_values=1),
        session=np.pad(session, pad).astype(np.int32),
        following=np.pad(following, pad, constant_values=-1).astype(np.int32),
        delay_ms=np.pad(np.nan_to_num(workload.delay_ms.astype(np.float64)), pad),
        service_ms=np.pad(service, pad),
        first_turns=np.pad(heads, rest).astype(np.int32),
        arrival_ms=np.pad(arrival, rest, constant_values=np.inf),
        sessions=_scalar(np.int32, heads.size),
        in_flight=_scalar(np.int32, workload.max_in_flight or 0),
        servers=_scalar(np.int32, stage.workers if stage else 1),
        until_ms=_scalar(np.float64, np.inf if until is None else until),
    )


def _transfer(deployment: Deployment) -> TransferCost:
    cost = deployment.transfer
    bandwidth = cost.bandwidth_gb_per_s or 0.0
    priced = bool(bandwidth and cost.bytes_per_token)
    return TransferCost(
        bytes_per_token=_scalar(np.float64, cost.bytes_per_token),
        bytes_per_s=_scalar(np.float64, bandwidth * 1e9 if priced else 1.0),
        latency_ms=_scalar(np.float64, cost.latency_ms),
        priced=_scalar(np.int32, priced),
        full_prompt=_scalar(np.int32, cost.full_prompt),
    )


def _draws(roles: tuple[Role, ...], shape: BlockShape) -> np.ndarray:
    found = np.zeros((shape.ranks, shape.draws))
    at = 0
    for role in roles:
        for rank in range(role.workers * role.ranks):
            if role.acceptance:
                found[at] = uniforms(role.speculation_seed + rank, shape.draws)
            at += 1
    return found
