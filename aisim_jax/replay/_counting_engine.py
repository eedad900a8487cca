"""The counting engine: many scenarios of vLLM or TensorRT-LLM without shared blocks.

Exact for aggregated workers of one rank whose requests share no prompt tokens, as long
as nothing is preempted while a prefix cache could return its blocks; the caller decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from .._errors import MissingPerfDataError, ReplayStalledError
from ..kernels.replay import (
    LOG_FULL,
    SLOTS_FULL,
    STALLED,
    UNPRICED,
    CountingShape,
    Lane,
    Limits,
    Traffic,
    run_scenario,
    run_scenarios,
)
from ..kernels.replay import Scenario as State
from ..traffic import Workload
from ._admissible import cut_outputs
from ._counting_logs import admissions_of, passes_of, token_times_of
from ._deployment import Deployment
from ._lanes import at_once, grouped, lane_kind, lane_runner, side_by_side
from ._outcome import COMPLETED, Replayed


Scenario = tuple[Workload, Deployment]
NO_LIMIT = 2**30


class Packed(NamedTuple):
    """One scenario in submission order: `order` gives the request of every row."""

    order: Int[np.ndarray, " reqs"]
    lane: Lane
    shape: CountingShape
    sorted_arrival_ms: Float[np.ndarray, " reqs"]


def counts_exactly(workload: Workload, deployment: Deployment) -> bool:
    """Whether this engine covers the scenario (preemption with a cache apart)."""
    role = deployment.decode
    return (
        deployment.policy in ("vllm", "trtllm")
        and not deployment.disaggregated
        and role.ranks == 1
        and role.preemption == "lifo"
        and role.startup_ms == 0
        and not role.acceptance
        and workload.tokenizer is None
        and not workload.has_sessions
        and not (role.prefix_caching and workload.contents.shares())
    )


def prices_apart(deployment: Deployment) -> bool:
    """Whether every request of a pass is priced at its own length."""
    prices = deployment.decode.prices
    return prices is not None and prices.apart


def replay_counting(scenarios: Sequence[Scenario], *, log: bool) -> list[Replayed]:
    """Replay every scenario; order is kept.

    Compile key: workers, slot bucket, request bucket, policy, kind of load, kind of
    prices, logged or not. Slots and logs grow until they suffice.
    """
    packed = [_pack(workload, deployment, log) for workload, deployment in scenarios]
    found: list[Replayed | None] = [None] * len(packed)
    waiting = list(range(len(packed)))
    while waiting:
        again: list[int] = []

        def run(members: list[int], again: list[int] = again) -> None:
            shape = packed[members[0]].shape
            answers = _runner(shape)([packed[i].lane for i in members])
            for i, answer in zip(members, answers, strict=True):
                status = int(answer["status"])
                larger = _larger(shape, status)
                if larger is None:
                    _check(status, answer)
                    found[i] = _unpack(*scenarios[i], packed[i], answer, log)
                else:
                    packed[i] = packed[i]._replace(shape=larger)
                    again.append(i)

        groups = grouped(
            waiting, lambda i: (packed[i].shape, lane_kind(packed[i].lane))
        )
        at_once(run, groups, lambda members: packed[members[0]].shape)
        waiting = sorted(again)
    return [one for one in found if one is not None]


@lru_cache(maxsize=64)
def _runner(shape: CountingShape):
    def answer_of(state: State) -> dict[str, Any]:
        answer = {
            "status": state.status,
            "records": state.records,
            "counters": state.counters,
            "busy_ns": state.busy_ns,
            "released": state.released,
        }
        if shape.log:
            answer |= {
                "log": state.log,
                "runs": state.runs,
                "admitted": state.admitted,
            }
        return answer

    def one(lane: Lane) -> dict[str, Any]:
        return answer_of(run_scenario(shape, lane))

    def many(lanes: Lane) -> dict[str, Any]:
        return answer_of(run_scenarios(shape, lanes))

    return lane_runner(one, many if shape.side_by_side else None)


def _larger(shape: CountingShape, status: int) -> CountingShape | None:
    if status == SLOTS_FULL:
        return shape._replace(slots=shape.slots * 4)
    if status == LOG_FULL:
        return shape._replace(log=shape.log * 4, runs=shape.runs * 4)
    return None


def _check(status: int, answer: dict[str, Any]) -> None:
    if status == STALLED:
        counted = int(answer["released"]) - int(
            (np.asarray(answer["records"].status) != 0).sum()
        )
        raise ReplayStalledError(
            f"effect-free zero-duration pass with {counted} in-flight requests "
            "remaining: the first of them can never be admitted"
        )
    if status == UNPRICED:
        raise MissingPerfDataError(
            "replay: a pass has no price in the tables of this deployment; choose "
            "another layout, version or database_mode"
        )


def _bucket(count: int, least: int) -> int:
    """least, 4 least, 16 least, ...: few sizes, so that scenarios share programs."""
    size = least
    while size < count:
        size *= 4
    return size


def _pack(workload: Workload, deployment: Deployment, log: bool) -> Packed:
    role = deployment.decode
    closed = workload.max_in_flight is not None
    isl = workload.isl_tokens.astype(np.int64)
    output = cut_outputs(isl, workload.osl_tokens.astype(np.int64), deployment)
    order = np.arange(workload.size)
    arrival = np.zeros(workload.size)
    if not closed:
        order = np.argsort(workload.arrival_ms, kind="stable")
        arrival = workload.arrival_ms[order]
    room = _bucket(workload.size, 64)
    pad = (0, room - workload.size)
    traffic = Traffic(
        np.pad(arrival, pad, constant_values=np.inf),
        np.pad(isl[order].astype(np.int32), pad, constant_values=1),
        np.pad((isl + output)[order].astype(np.int32), pad, constant_values=2),
    )
    in_flight = workload.max_in_flight or 0
    until = workload.max_virtual_time_ms
    limits = Limits(
        workers=np.int32(role.workers),
        budget=np.int32(role.max_batched_tokens),
        max_sequences=np.int32(role.max_sequences),
        block_size=np.int32(role.block_size),
        blocks=np.int32(role.num_blocks),
        max_model_len=np.int32(
            NO_LIMIT if role.max_model_len is None else role.max_model_len
        ),
        chunked=np.int32(role.chunked_prefill),
        requests=np.int32(workload.size),
        in_flight=np.int32(in_flight),
        until_ms=np.float64(np.inf if until is None else until),
    )
    likely = min(in_flight, workload.size) if closed else 64
    shape = CountingShape(
        workers=1 if role.workers == 1 else _bucket(role.workers, 8),
        slots=_bucket(min(likely, role.max_sequences, workload.size), 8),
        guaranteed=deployment.policy == "trtllm",
        closed_loop=closed,
        window=8,
        log=4 * room if log else 0,
        runs=2 * room if log else 0,
        apart=prices_apart(deployment),
        side_by_side=side_by_side(),
    )
    return Packed(order, Lane(limits, traffic, role.steps), shape, arrival)


def _unpack(
    workload: Workload,
    deployment: Deployment,
    packed: Packed,
    answer: dict[str, Any],
    log: bool,
) -> Replayed:
    size, order = workload.size, packed.order
    records, counters = answer["records"], answer["counters"]
    until_ms = float(packed.lane.limits.until_ms)

    def placed(values: np.ndarray) -> np.ndarray:
        out = np.empty(size, values.dtype)
        out[order] = values[:size]
        return out

    terminal = placed(records.last_ms)
    late = terminal > until_ms
    terminal[late] = np.nan
    status = np.where(late, 0, placed(records.status))
    arrival = workload.arrival_ms
    if workload.max_in_flight is not None:
        arrival = _closed_loop_arrivals(terminal, workload.max_in_flight)
    isl, target = packed.lane.traffic.isl, packed.lane.traffic.target
    output = placed((target - isl)[:size])
    done = status == COMPLETED
    spoke = done & (output > 0)
    admit, first = placed(records.admit_ms), placed(records.first_ms)
    second = np.full(size, np.nan)
    workers = np.empty(size, np.int64)
    workers[order] = np.arange(size) % deployment.decode.workers
    arrived = np.isfinite(arrival) & (arrival <= until_ms)
    busy = np.asarray(answer["busy_ns"])[: deployment.decode.workers] / 1e6
    telemetry = {f"busy_ms_aggregated_{w}": float(ms) for w, ms in enumerate(busy)}
    telemetry["peak_blocks"] = float(counters.peak_blocks)
    telemetry["events"] = float(counters.events)
    extra: dict[str, Any] = {}
    if log:
        name = packed, answer
        times = token_times_of(*name, status=status)
        start, at = times.start, times.at_ms
        two = done & (output > 1)
        second[two] = at[start[:-1][two] + 1]
        extra = {
            "admissions": lambda: admissions_of(*name, status=status),
            "passes": lambda: passes_of(*name),
            "token_times": lambda: times,
        }
    return Replayed(
        arrival_ms=np.where(arrived, arrival, np.nan),
        first_admit_ms=np.where(done, admit, np.nan),
        first_token_ms=np.where(spoke, first, np.nan),
        second_token_ms=second,
        last_token_ms=np.where(spoke, terminal, np.nan),
        terminal_ms=terminal,
        status=status.astype(np.int64),
        output_tokens=np.where(done, output, 0).astype(np.int64),
        worker=np.where(arrived, workers, -1),
        reused_tokens=np.zeros(size, np.int64),
        first_reused_tokens=np.zeros(size, np.int64),
        preemptions=int(counters.preemptions),
        committed_prefill_tokens=int(counters.prefill_tokens),
        engine="counting: no shared blocks",
        telemetry=telemetry,
        **extra,
    )


def _closed_loop_arrivals(
    terminal_ms: Float[np.ndarray, " reqs"], in_flight: int
) -> Float[np.ndarray, " reqs"]:
    """Request k arrives when the (k - in_flight)-th departure happens."""
    arrival = np.zeros(terminal_ms.size)
    departures = np.sort(terminal_ms)
    arrival[in_flight:] = departures[: max(terminal_ms.size - in_flight, 0)]
    return arrival
