"""The block engine: vLLM and TensorRT-LLM with all blocks of all pools followed.

Exact for everything that these schedulers do: prefix caches, preemption, sessions,
replicas, attention data parallelism, hand-over from prefill to decode, speculation.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from .._errors import MissingPerfDataError, ReplayStalledError
from ..kernels.replay import BlockLane, BlockShape, run_blocks
from ..kernels.replay import _block_state as codes
from ..traffic import Workload
from ._block_pack import Packed, bucket, pack, roles_of
from ._deployment import Deployment
from ._lanes import at_once, grouped, lane_kind, lane_runner
from ._outcome import COMPLETED, Admissions, Handoff, Passes, Replayed, TokenTimes


Scenario = tuple[Workload, Deployment]


def replay_blocks(scenarios: Sequence[Scenario], *, log: bool) -> list[Replayed]:
    """Replay every scenario; order is kept.

    Compile key: `BlockShape` and the kind of prices. Logs and speculation draws grow
    until they suffice.
    """
    packed = [
        pack(workload, deployment, log, bucket(4 * workload.size, 1024))
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
                larger = _larger(*scenarios[i], packed[i], answer, log)
                if larger is None:
                    found[i] = _unpack(*scenarios[i], packed[i], answer, log)
                else:
                    packed[i] = larger
                    again.append(i)

        groups = grouped(
            waiting, lambda i: (packed[i].shape, lane_kind(packed[i].lane))
        )
        at_once(run, groups, lambda members: packed[members[0]].shape)
        waiting = sorted(again)
    return [one for one in found if one is not None]


@lru_cache(maxsize=64)
def _runner(shape: BlockShape):
    def one(lane: BlockLane) -> dict[str, Any]:
        world = run_blocks(shape, lane)
        answer = {
            "loop": world.loop,
            "records": world.records,
            "busy_ms": world.workers.busy_ms,
            "peak": world.ranks.peak,
            "stored": world.ranks.stored,
            "removed": world.ranks.removed,
        }
        return answer | ({"logs": world.logs} if shape.passes else {})

    return lane_runner(one)


def _larger(
    workload: Workload,
    deployment: Deployment,
    packed: Packed,
    answer: dict[str, Any],
    log: bool,
) -> Packed | None:
    """The scenario with more room where a capacity was hit; None when it has run."""
    status, shape = int(answer["loop"].status), packed.shape
    if status == codes.LOG_FULL:
        room = {"passes": shape.passes * 4, "admissions": shape.admissions * 4}
        return packed._replace(shape=shape._replace(**room))
    if status == codes.ACTIONS_FULL:
        return packed._replace(shape=shape._replace(actions=shape.actions * 4))
    if status == codes.DRAWS_USED:
        more = pack(workload, deployment, log, shape.draws * 4)
        return packed._replace(
            lane=packed.lane._replace(draws=more.lane.draws),
            shape=shape._replace(draws=shape.draws * 4),
        )
    if status == codes.STALLED:
        raise ReplayStalledError(
            f"effect-free zero-duration pass with {int(answer['loop'].in_flight)} "
            "in-flight requests remaining: the first of them can never be admitted"
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
    answer: dict[str, Any],
    log: bool,
) -> Replayed:
    size, records, loop = workload.size, answer["records"], answer["loop"]
    roles = roles_of(deployment)
    fields = {name: _values(value)[:size] for name, value in records._asdict().items()}
    done = fields["status"] == COMPLETED
    first_decode = int(packed.lane.limits.first_rank[-1])
    rank, source = fields["rank"], fields["source"]
    worker = np.where(rank >= 0, rank - first_decode, -1)
    shared = {"engine": "blocks: every block of every pool"}
    if not packed.shape.blocks:
        shared = {"engine": "blocks: counted, no prefix cache"}
    extra: dict[str, Any] = {}
    if len(roles) > 1:
        extra["handoff"] = Handoff(
            prefill_worker=source.astype(np.int64),
            prefill_admit_ms=fields["prefill_admit_ms"],
            source_held_ms=fields["held_ms"],
            destination_reserved_ms=fields["reserved_ms"],
            destination_activated_ms=fields["activated_ms"],
            decode_admit_ms=fields["decode_admit_ms"],
            source_released_ms=fields["released_ms"],
        )
    if log:
        extra["admissions"] = lambda: _admissions(packed, answer)
        extra["passes"] = lambda: _passes(packed, answer)
        extra["token_times"] = lambda: _token_times(packed, answer, fields["output"])
    return Replayed(
        arrival_ms=fields["arrival_ms"],
        first_admit_ms=fields["admit_ms"],
        first_token_ms=np.where(done, fields["first_ms"], np.nan),
        second_token_ms=np.where(done, fields["second_ms"], np.nan),
        last_token_ms=np.where(done, fields["last_ms"], np.nan),
        terminal_ms=fields["terminal_ms"],
        status=fields["status"].astype(np.int64),
        output_tokens=np.where(done, fields["output"], 0).astype(np.int64),
        worker=worker.astype(np.int64),
        reused_tokens=fields["reuse"].astype(np.int64),
        first_reused_tokens=fields["first_reuse"].astype(np.int64),
        preemptions=int(loop.preemptions),
        committed_prefill_tokens=int(loop.prefill_tokens),
        telemetry=_telemetry(roles, packed, answer),
        **shared,
        **extra,
    )


def _values(field: Any) -> np.ndarray:
    return np.asarray(getattr(field, "values", field))


def _telemetry(
    roles: tuple[Any, ...], packed: Packed, answer: dict[str, Any]
) -> dict[str, float]:
    names = ("aggregated",) if len(roles) == 1 else ("prefill", "decode")
    limits = packed.lane.limits
    figures = {
        "events": float(answer["loop"].events),
        "stored_blocks": float(_values(answer["stored"])[:-1].sum()),
        "evicted_blocks": float(_values(answer["removed"])[:-1].sum()),
    }
    peak = _values(answer["peak"])
    for pool, (name, role) in enumerate(zip(names, roles, strict=True)):
        first = int(limits.first_worker[pool])
        for worker in range(role.workers):
            busy = answer["busy_ms"][first + worker]
            figures[f"busy_ms_{name}_{worker}"] = float(busy)
        first = int(limits.first_rank[pool])
        used = peak[first : first + role.workers * role.ranks]
        figures[f"peak_blocks_{name}"] = float(used.max())
    figures["peak_blocks"] = max(figures[f"peak_blocks_{name}"] for name in names)
    return figures


def _pools(packed: Packed, ranks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(0 aggregated, 1 prefill, 2 decode; rank within its pool)."""
    pool = np.asarray(packed.lane.places.pool_of_rank)[ranks]
    within = ranks - np.asarray(packed.lane.limits.first_rank)[pool]
    return pool + (packed.shape.pools > 1), within


def _admissions(packed: Packed, answer: dict[str, Any]) -> Admissions:
    logs = answer["logs"]
    used = int(logs.admissions)
    request, pool, reuse = logs.admission[:used].T.astype(np.int64)
    pool = pool + (packed.shape.pools > 1)
    return Admissions(request, logs.admission_ms[:used], pool, reuse)


def _passes(packed: Packed, answer: dict[str, Any]) -> Passes:
    logs = answer["logs"]
    used = int(logs.passes)
    start, end = logs.pass_ms[:used].T
    ranks, *sums = logs.pass_counts[:used].T.astype(np.int64)
    pool, within = _pools(packed, ranks)
    return Passes(start, end, pool, within, *sums)


def _token_times(
    packed: Packed, answer: dict[str, Any], output: np.ndarray
) -> TokenTimes:
    """Tokens of completed requests."""
    first = packed.first_token
    count = output.astype(np.int64)
    start = np.concatenate([[0], np.cumsum(count)])
    inside = np.arange(int(start[-1])) - np.repeat(start[:-1], count)
    place = np.repeat(first[:-1], count) + inside
    return TokenTimes(answer["logs"].token_ms[place], start)
