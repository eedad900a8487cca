"""The radix engine: SGLang workers with a radix tree of cached pages, or page counts.

Exact for SGLang, aggregated or with a prefill and a decode pool: retraction, chunked
prefill, sessions, replicas, attention data parallelism, prefill intervals. Pages are counted where no prompt can share any and
nothing is retracted; else the tree follows every cached page.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from .._errors import MissingPerfDataError, ReplayStalledError
from ..kernels.replay import (
    RadixAnswer,
    RadixLane,
    RadixShape,
    SglangLimits,
    run_radix,
)
from ..kernels.replay import _radix_state as codes
from ..traffic import Workload
from ._deployment import Deployment
from ._lanes import at_once, grouped, lane_kind, lane_runner
from ._outcome import COMPLETED, REJECTED, UNFINISHED, Handoff, Replayed
from ._radix_logs import admissions_of, passes_of, token_times_of
from ._radix_pack import SGLANG_LIMITS, Packed, likely_nodes, pack


Scenario = tuple[Workload, Deployment]


def replay_radix(
    scenarios: Sequence[Scenario], *, log: bool, limits: SglangLimits = SGLANG_LIMITS
) -> list[Replayed]:
    """Replay every scenario; order is kept.

    Compile key: `RadixShape` and the kind of prices. Trees and logs grow until they
    suffice.
    """
    packed = [
        pack(workload, deployment, limits, log=log)
        for workload, deployment in scenarios
    ]
    found: list[Replayed | None] = [None] * len(packed)
    waiting = list(range(len(packed)))
    while waiting:
        again: list[int] = []

        def run(members: list[int], again: list[int] = again) -> None:
            runner = _runner(packed[members[0]].shape)
            answers = runner([packed[i].lane for i in members])
            for i, answer in zip(members, answers, strict=True):
                larger = _larger(*scenarios[i], packed[i].shape, answer)
                if larger is None:
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
def _runner(shape: RadixShape):
    def one(lane: RadixLane) -> RadixAnswer:
        return run_radix(shape, lane)

    return lane_runner(one)


def _larger(
    workload: Workload, deployment: Deployment, shape: RadixShape, answer: RadixAnswer
) -> RadixShape | None:
    """More room where a capacity was hit; None when the scenario has run."""
    status = int(answer.status)
    if status == codes.NEEDS_TREE:
        return shape._replace(nodes=likely_nodes(workload, deployment))
    if status == codes.NODES:
        return shape._replace(nodes=2 * shape.nodes)
    if status == codes.PASSES:
        return shape._replace(passes=4 * shape.passes)
    if status == codes.ADMISSIONS:
        return shape._replace(admissions=4 * shape.admissions)
    if status == codes.JOINS:
        return shape._replace(joins=4 * shape.joins)
    if status == codes.ACTIONS:
        return shape._replace(actions=4 * shape.actions)
    if status == codes.STALLED:
        ended = ~np.isnan(answer.live.terminal_ms)
        came = np.asarray(answer.live.rank) >= 0
        waiting = int((came & ~ended)[: workload.size].sum())
        raise ReplayStalledError(
            f"effect-free zero-duration pass with {waiting} in-flight requests "
            "remaining: the first of them can never be admitted"
        )
    if status == codes.UNPRICED:
        raise MissingPerfDataError(
            "replay: a pass has no price in the tables of this deployment; choose "
            "another layout, version or database_mode"
        )
    return None


def _unpack(
    workload: Workload,
    deployment: Deployment,
    packed: Packed,
    answer: RadixAnswer,
    log: bool,
) -> Replayed:
    size, shape, totals = workload.size, packed.shape, answer.totals
    live = jax.tree.map(lambda leaf: leaf[:size], answer.live)
    source = None
    if deployment.prefill is not None:
        half = shape.reqs // 2
        source = jax.tree.map(lambda leaf: leaf[half : half + size], answer.live)
    cap_ms = float(packed.lane.engine.cap_ms)
    ended = live.terminal_ms <= cap_ms
    rejected = packed.lane.load.rejected[:size]
    status = np.where(ended, np.where(rejected, REJECTED, COMPLETED), UNFINISHED)
    done = status == COMPLETED
    spoke = done & (live.generated > 0)
    level = "tree of cached pages" if shape.nodes else "counting"
    telemetry = _busy(shape, answer)
    page = deployment.decode.block_size
    telemetry |= {
        "events": float(totals.events),
        "retractions": float(totals.retractions),
        "evicted_blocks": float(totals.evicted_pages),
        "peak_blocks": float(totals.peak_pages),
        "peak_tokens": float(totals.peak_pages) * page,
    }
    extra: dict[str, Any] = {}
    worker = live.rank.astype(np.int64)
    entry, reuse = live, live.reuse
    if source is not None:
        extra["handoff"] = _handoff(size, source, live, answer)
        worker = np.where(worker >= 0, worker - shape.source_ranks, -1)
        entry, reuse = source, np.maximum(source.reuse, live.reuse)
    if log:
        extra["admissions"] = lambda: admissions_of(packed, answer)
        extra["passes"] = lambda: passes_of(packed, answer)
        extra["token_times"] = lambda: token_times_of(packed, answer, done)
    return Replayed(
        arrival_ms=live.arrival_ms,
        first_admit_ms=entry.admit_ms,
        first_token_ms=np.where(spoke, live.first_ms, np.nan),
        second_token_ms=np.where(done & (live.generated > 1), live.second_ms, np.nan),
        last_token_ms=np.where(spoke, live.last_ms, np.nan),
        terminal_ms=np.where(ended, live.terminal_ms, np.nan),
        status=status.astype(np.int64),
        output_tokens=np.where(done, live.generated, 0).astype(np.int64),
        worker=worker,
        reused_tokens=reuse.astype(np.int64),
        first_reused_tokens=entry.first_reuse.astype(np.int64),
        preemptions=int(totals.retractions),
        committed_prefill_tokens=int(totals.committed_tokens),
        engine=f"radix: {level}",
        telemetry=telemetry,
        **extra,
    )


def _busy(shape: RadixShape, answer: RadixAnswer) -> dict[str, float]:
    """Time that every worker was stepping, ms."""
    first, busy_ms = shape.prefill_workers, answer.totals.busy_ms
    name = "decode" if first else "aggregated"
    named = {f"busy_ms_prefill_{i}": float(ms) for i, ms in enumerate(busy_ms[:first])}
    return named | {
        f"busy_ms_{name}_{i}": float(ms) for i, ms in enumerate(busy_ms[first:])
    }


def _handoff(size: int, source: Any, live: Any, answer: RadixAnswer) -> Handoff:
    """source, live: rows of the requests in the prefill and in the decode pool."""

    def own(values: Any) -> np.ndarray:
        return np.asarray(values)[:size]

    return Handoff(
        prefill_worker=source.rank.astype(np.int64),
        prefill_admit_ms=source.admit_ms,
        source_held_ms=source.terminal_ms,
        destination_reserved_ms=own(answer.reserved_ms),
        destination_activated_ms=own(answer.activated_ms),
        decode_admit_ms=live.admit_ms,
        source_released_ms=own(answer.released_ms),
    )
