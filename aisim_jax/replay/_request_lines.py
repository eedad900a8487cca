"""Per-request records as JSON lines, under the reference's field names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from ..traffic import Workload
from ._deployment import Deployment, Role
from ._outcome import COMPLETED, UNFINISHED, Replayed
from ._telemetry import POOLS


NULL = "null"


def request_lines(
    replayed: Replayed,
    workload: Workload,
    deployment: Deployment,
    rejections: Sequence[str],
    run: int | None = None,
) -> Iterator[str]:
    """One line per request that ended, in index order; instants in ms of virtual time.

    `workload` holds the lengths as they were asked for; `rejections` says per request
    why it was turned away, "" for all others. run: number of the run, written if given.
    """
    ended = np.flatnonzero(replayed.status != UNFINISHED)
    columns = _columns(replayed, workload, deployment, ended)
    columns["rejection_reason"] = [
        _text(rejections[row]) if rejections[row] else NULL for row in ended.tolist()
    ]
    if run is not None:
        columns["run"] = [str(run)] * ended.size
    names = sorted(columns)
    form = "{" + ",".join(f'"{name}":%s' for name in names) + "}"
    for cells in zip(*(columns[name] for name in names), strict=True):
        yield form % cells


def _columns(
    replayed: Replayed,
    workload: Workload,
    deployment: Deployment,
    ended: Int[np.ndarray, " ended"],
) -> dict[str, list[str]]:
    arrival, first = replayed.arrival_ms[ended], replayed.first_token_ms[ended]
    last, output = replayed.last_token_ms[ended], replayed.output_tokens[ended]
    done = replayed.status[ended] == COMPLETED
    gaps = np.maximum(output.astype(np.int64) - 1, 0)
    mean_gap = np.where(gaps > 0, (last - first) / np.maximum(gaps, 1), np.nan)
    second = np.where(gaps > 0, replayed.second_token_ms[ended] - first, np.nan)
    columns = {
        "arrival_time_ms": _floats(arrival),
        "first_admit_ms": _floats(replayed.first_admit_ms[ended]),
        "first_token_ms": _floats(first),
        "last_token_ms": _floats(last),
        "terminal_time_ms": _floats(replayed.terminal_ms[ended]),
        "terminal_status": ['"completed"' if one else '"rejected"' for one in done],
        "ttft_ms": _floats(first - arrival),
        "ttst_ms": _floats(second),
        "itl_ms": _floats(mean_gap),
        "e2e_latency_ms": _floats(last - arrival),
        "input_length": _integers(workload.isl_tokens[ended]),
        "requested_output_length": _integers(workload.osl_tokens[ended]),
        "output_length": _integers(output),
        "first_admission_reused_input_tokens": _integers(
            replayed.first_reused_tokens[ended]
        ),
        "decode_worker_idx": _integers(replayed.worker[ended]),
        "session_id": _session_names(workload, ended),
        "turn_index": _integers(workload.turn[ended]),
        # Names, not secrets: the same run writes the same file.
        "uuid": [f'"{row:08x}-0000-4000-8000-{row:012x}"' for row in ended.tolist()],
        "dispatched_at_ms": [NULL] * ended.size,
        "pressure_record_ordinals": ["[]"] * ended.size,
        "routing_history": _routing(replayed, deployment, ended),
    }
    return columns | _admissions(replayed, ended) | _handoff(replayed, ended)


def _floats(values: Float[np.ndarray, " ended"]) -> list[str]:
    return [NULL if one != one else repr(one) for one in values.tolist()]


def _integers(values: Shaped[np.ndarray, " ended"]) -> list[str]:
    return [NULL if one < 0 else str(one) for one in values.tolist()]


def _text(value: str) -> str:
    import json

    return json.dumps(value)


def _session_names(workload: Workload, ended: Int[np.ndarray, " ended"]) -> list[str]:
    sessions = workload.session[ended].tolist()
    if workload.session_names is None:
        return [f'"session_{one}"' for one in sessions]
    return [_text(workload.session_names[one]) for one in sessions]


def _admissions(
    replayed: Replayed, ended: Int[np.ndarray, " ended"]
) -> dict[str, list[str]]:
    """Histories in time order per request; reuse is the most of any admission of a pool.

    A readmission is a further admission to the same pool.
    """
    if replayed.admissions is None:
        raise ValueError("a run without a log has no admission histories")
    log = replayed.admissions()
    size = replayed.status.size
    order = np.argsort(log.request, kind="stable")
    request, pool = log.request[order], log.pool[order]
    reused, at_ms = log.reused_tokens[order], log.at_ms[order]
    counts = np.bincount(request, minlength=size)
    start = np.concatenate([[0], np.cumsum(counts)])
    ordinal = np.arange(request.size) - start[request]
    in_pool = _ordinal_in_pool(request, pool)
    cells = [
        f'{{"admission_ordinal":{k},"at_ms":{at!r},"is_readmission":'
        f'{"true" if m else "false"},"pool":"{POOLS[p]}","pool_admission_ordinal":{m},'
        f'"reused_input_tokens":{r}}}'
        for k, at, m, p, r in zip(
            ordinal.tolist(),
            at_ms.tolist(),
            in_pool.tolist(),
            pool.tolist(),
            reused.tolist(),
            strict=True,
        )
    ]
    bounds = start.tolist()
    readmitted = np.bincount(request[in_pool > 0], minlength=size)
    return {
        "admission_count": _integers(counts[ended]),
        "readmission_count": _integers(readmitted[ended]),
        "admission_history": [
            f"[{','.join(cells[bounds[row] : bounds[row + 1]])}]"
            for row in ended.tolist()
        ],
        "reused_input_tokens": _integers(
            _most(request, reused, pool != 2, size, 0)[ended]
        ),
        "decode_reused_input_tokens": _integers(
            _most(request, reused, pool == 2, size, -1)[ended]
        ),
    }


def _ordinal_in_pool(
    request: Int[np.ndarray, " admissions"], pool: Int[np.ndarray, " admissions"]
) -> Int[np.ndarray, " admissions"]:
    """How many earlier admissions of the same request went to the same pool."""
    key = request.astype(np.int64) * len(POOLS) + pool
    order = np.argsort(key, kind="stable")
    sorted_key = key[order]
    begin = np.searchsorted(sorted_key, sorted_key, side="left")
    ordinal = np.empty_like(key)
    ordinal[order] = np.arange(key.size) - begin
    return ordinal


def _most(
    request: Int[np.ndarray, " admissions"],
    reused: Int[np.ndarray, " admissions"],
    mask: Bool[np.ndarray, " admissions"],
    size: int,
    missing: int,
) -> Int[np.ndarray, " reqs"]:
    most = np.full(size, missing, np.int64)
    np.maximum.at(most, request[mask], reused[mask].astype(np.int64))
    return most


def _handoff(
    replayed: Replayed, ended: Int[np.ndarray, " ended"]
) -> dict[str, list[str]]:
    names = (
        "prefill_admit_ms",
        "source_held_ms",
        "destination_reserved_ms",
        "destination_activated_ms",
        "decode_admit_ms",
        "source_released_ms",
    )
    handoff = replayed.handoff
    if handoff is None:
        nothing = [NULL] * ended.size
        return dict.fromkeys((*names, "prefill_worker_idx"), nothing)
    return {
        "prefill_worker_idx": _integers(handoff.prefill_worker[ended]),
        **{name: _floats(getattr(handoff, name)[ended]) for name in names},
    }


def _routing(
    replayed: Replayed, deployment: Deployment, ended: Int[np.ndarray, " ended"]
) -> list[str]:
    """Which worker and rank each pool gave the request to; placement never waits."""
    decode = replayed.worker[ended]
    if deployment.prefill is None or replayed.handoff is None:
        return [f"[{one}]" for one in _placed(decode, deployment.decode, "agg")]
    prefill = replayed.handoff.prefill_worker[ended]
    steps = zip(
        _placed(prefill, deployment.prefill, "prefill"),
        _placed(decode, deployment.decode, "decode"),
        strict=True,
    )
    return [f"[{','.join(filter(None, pair))}]" for pair in steps]


def _placed(worker: Int[np.ndarray, " ended"], role: Role, pool: str) -> list[str]:
    return [
        ""
        if one < 0
        else f'{{"dp_rank":{one % role.ranks},"logical_worker_id":{one // role.ranks},'
        f'"outcome":"immediate","pool":"{pool}","queue_wait_ms":0.0}}'
        for one in worker.tolist()
    ]
