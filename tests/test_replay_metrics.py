"""Reports of replayed scenarios: from the recorded instants to the recorded figures."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from replay_golden import case_names, load_case


QUANTITIES = (
    "ttft_ms",
    "ttst_ms",
    "tpot_ms",
    "itl_ms",
    "e2e_latency_ms",
    "output_token_throughput_per_user",
)
BINNED = ("itl_ms", "output_token_throughput_per_user")
CENTILES = ("median", "p75", "p90", "p95", "p99")


def columns(golden: dict[str, Any]) -> dict[str, list[Any]]:
    rows = golden["requests"]
    table = {
        name: [row[place] for row in rows]
        for place, name in enumerate(golden["request_columns"])
    }
    constants = golden.get("request_constants", {})
    return {**{k: [v] * len(rows) for k, v in constants.items()}, **table}


def numbers(values: list[Any]) -> np.ndarray:
    return np.array([math.nan if one is None else one for one in values], float)


def recorded(golden: dict[str, Any]):
    """A golden's requests as a replayed scenario, its workload and its deployment."""
    from aisim_jax.kernels.replay import FixedSteps
    from aisim_jax.replay import COMPLETED, REJECTED, Deployment, Replayed, Role
    from aisim_jax.replay._outcome import Admissions, Handoff, Passes, TokenTimes
    from aisim_jax.traffic import Workload

    table = columns(golden)
    figures, resolved = golden["summary"], golden["resolved"]
    size = len(golden["requests"])
    first = numbers(table["first_token_ms"])
    times = passes = None
    if "token_times_ms" in golden:
        rows = golden["token_times_ms"]
        start = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
        flat = np.array([at for row in rows for at in row], float)
        times = TokenTimes(flat, start)
        second = numbers([row[1] if len(row) > 1 else None for row in rows])
    else:
        second = first + numbers(table["ttst_ms"])
    if "passes" in golden:
        log = golden["passes"]
        pools = {"aggregated": 0, "agg": 0, "prefill": 1, "decode": 2}
        found = {
            name: [row[place] for row in log["rows"]]
            for place, name in enumerate(log["columns"])
        }
        zero = np.zeros(len(log["rows"]), np.int64)
        passes = Passes(
            numbers(found["start_ms"]),
            numbers(found["end_ms"]),
            np.array([pools[one] for one in found["pool"]])
            if "pool" in found
            else zero,
            np.array(found["worker"]),
            zero + 1,
            *[zero] * 5,
        )
    pools = ("agg", "prefill", "decode")
    history = [(row, *one) for row, h in enumerate(table["admissions"]) for one in h]
    admissions = Admissions(
        np.array([one[0] for one in history], np.int64),
        np.array([one[1] for one in history], float),
        np.array([pools.index(one[2]) for one in history], np.int64),
        np.array([one[3] for one in history], np.int64),
    )
    handoff = None
    if "prefill_worker_idx" in table:
        handoff = Handoff(
            np.array(table["prefill_worker_idx"]),
            *(
                numbers(table[name])
                for name in Handoff.__dataclass_fields__
                if name.endswith("_ms")
            ),
        )
    replayed = Replayed(
        arrival_ms=numbers(table["arrival_ms"]),
        first_admit_ms=numbers(table["first_admit_ms"]),
        first_token_ms=first,
        second_token_ms=second,
        last_token_ms=numbers(table["last_token_ms"]),
        terminal_ms=numbers(table["terminal_time_ms"]),
        status=np.array(
            [COMPLETED if s == "completed" else REJECTED for s in table["status"]]
        ),
        output_tokens=np.array(table["output_tokens"]),
        worker=np.array(table["worker"]),
        reused_tokens=np.array(
            [max((a[2] for a in row), default=0) for row in table["admissions"]]
        ),
        first_reused_tokens=np.array(
            [one or 0 for one in table["first_admission_reused_input_tokens"]]
        ),
        preemptions=golden.get("preemptions", 0),
        committed_prefill_tokens=figures["committed_prefill_tokens"],
        engine="recorded",
        handoff=handoff,
        admissions=lambda: admissions,
        passes=None if passes is None else lambda: passes,
        token_times=None if times is None else lambda: times,
    )
    zeros = np.zeros(size)
    workload = Workload(
        arrival_ms=replayed.arrival_ms,
        isl_tokens=np.array(table["input_tokens"]),
        osl_tokens=np.array(table["requested_output_tokens"]),
        session=np.arange(size),
        turn=np.array(table["turn"]),
        delay_ms=zeros,
        max_in_flight=resolved["max_in_flight"],
        max_virtual_time_ms=resolved["max_sim_time_ms"],
        session_names=tuple(table["session"]),
    )
    steps = FixedSteps(np.zeros((), np.int32), np.zeros((), np.int32))
    topology = resolved["topology"]

    def role(name: str, pool: str) -> Role:
        engine = resolved["engine"]
        engine = engine.get(name, engine)
        return Role(
            workers=topology[pool]["initial_workers"],
            ranks=engine["dp_size"],
            max_batched_tokens=1,
            max_sequences=1,
            block_size=1,
            num_blocks=1,
            steps=steps,
            gpus_per_worker=figures[f"{name}_gpus_per_worker"],
        )

    if topology["kind"] == "aggregated":
        deployment = Deployment("vllm", role("decode", "workers"))
    else:
        deployment = Deployment(
            "vllm", role("decode", "decode"), role("prefill", "prefill")
        )
    return replayed, workload, deployment


def bounds_of(golden: dict[str, Any]):
    from aisim_jax.replay._goodput import Bounds

    sla = golden["resolved"]["sla"]
    return Bounds(**sla) if sla else None


def agrees(ours: Any, theirs: Any, relative: float) -> bool:
    if isinstance(theirs, float):
        return math.isclose(ours, theirs, rel_tol=relative, abs_tol=1e-9)
    return ours == theirs


def tolerance(name: str) -> float:
    centile, _, quantity = name.partition("_")
    return 1.0011e-3 if centile in CENTILES and quantity in BINNED else 1e-9


@pytest.mark.parametrize("compat", [True, False])
def test_recorded_instants_give_the_recorded_figures(compat: bool) -> None:
    from aisim_jax.replay._metrics import summary

    checked = 0
    for name in case_names():
        golden = load_case(name)
        if "error" in golden:
            continue
        report = summary(*recorded(golden), bounds=bounds_of(golden), compat=compat)
        has_tokens = "token_times_ms" in golden
        capped = golden["resolved"]["max_sim_time_ms"] is not None
        for key, expected in golden["summary"].items():
            needs_tokens = any(key.endswith(one) for one in BINNED)
            if key.startswith(("kv_cache_pr", "prediction_")) or (
                needs_tokens and not has_tokens and key != "mean_itl_ms"
            ):
                continue
            if capped and key in ("num_requests", "decode_worker_seconds", "gpu_hours"):
                continue  # of requests and passes that the record leaves out
            limit = 1e-9 if compat else tolerance(key)
            assert agrees(report[key], expected, limit), (
                name,
                key,
                report[key],
                expected,
            )
            checked += 1
    assert checked > 5000


RECORD_NAMES = {
    "session": "session_id",
    "turn": "turn_index",
    "arrival_ms": "arrival_time_ms",
    "input_tokens": "input_length",
    "requested_output_tokens": "requested_output_length",
    "output_tokens": "output_length",
    "status": "terminal_status",
    "worker": "decode_worker_idx",
}


def test_request_lines_carry_the_recorded_values() -> None:
    from aisim_jax.replay._request_lines import request_lines

    checked = 0
    for name in case_names():
        golden = load_case(name)
        if "error" in golden:
            continue
        replayed, workload, deployment = recorded(golden)
        lines = request_lines(replayed, workload, deployment, [""] * workload.size)
        table = columns(golden)
        for row, line in enumerate(lines):
            record = json.loads(line)
            assert list(record) == sorted(record)
            for column, values in table.items():
                if column == "admissions":
                    history = [
                        [one["at_ms"], one["pool"], one["reused_input_tokens"]]
                        for one in record["admission_history"]
                    ]
                    assert history == values[row], (name, row)
                    continue
                if column == "dp_rank":
                    rank = record["routing_history"][-1]["dp_rank"]
                    assert values[row] in (rank, None)
                    continue
                ours = record[RECORD_NAMES.get(column, column)]
                assert agrees(ours, values[row], 1e-9), (name, row, column)
                checked += 1
    assert checked > 20000


def test_an_admission_to_the_same_pool_again_is_a_readmission() -> None:
    from aisim_jax.replay._request_lines import request_lines

    replayed, workload, deployment = recorded(load_case("h05_decode_pressure"))
    lines = request_lines(replayed, workload, deployment, [""] * workload.size)
    record = next(r for r in map(json.loads, lines) if r["admission_count"] == 3)
    found = [one["is_readmission"] for one in record["admission_history"]]
    assert (found, record["readmission_count"]) == ([False, False, True], 1)


def test_lanes_report_what_the_single_report_says() -> None:
    from aisim_jax.replay._lane_metrics import lane_metrics
    from aisim_jax.replay._metrics import summary

    names = ["a09_poisson", "c01_preempt", "e02_ctx_reject", "h08_3p1d", "k01_sla"]
    scenarios = [recorded(load_case(name)) for name in names]
    bounds = bounds_of(load_case("k01_sla"))
    lanes = lane_metrics(
        [one[0] for one in scenarios],
        [(work, where) for _, work, where in scenarios],
        bounds,
    )
    for lane, scenario in enumerate(scenarios):
        report = summary(*scenario, bounds=bounds)
        for name, values in lanes._asdict().items():
            assert agrees(float(values[lane]), float(report[name]), 1e-12), name


def test_a_lane_without_completions_has_no_latency() -> None:
    from aisim_jax.replay import REJECTED
    from aisim_jax.replay._lane_metrics import lane_metrics

    replayed, work, where = recorded(load_case("a01_single"))
    lost = replace(replayed, status=np.full_like(replayed.status, REJECTED))
    lanes = lane_metrics([lost], [(work, where)])
    assert lanes.rejected_requests[0] == 1
    assert np.isnan([lanes.mean_ttft_ms[0], lanes.mean_itl_ms[0]]).all()


def test_waiting_requests_are_counted_between_arrival_and_admission() -> None:
    from aisim_jax.replay._telemetry import level

    found = level(np.array([0.0, 1.0, 1.0]), np.array([0.0, 3.0, 5.0]))
    assert found.peak() == 2
    assert found.mean(10.0) == pytest.approx((2 * 2 + 1 * 2) / 10)


def test_busy_share_is_the_time_in_passes() -> None:
    from aisim_jax.replay._metrics import summary

    # Two waves of four, each 10 + 8 * 3 ms, no pause.
    report = summary(*recorded(load_case("a02_conc4")))
    assert report["busy_share"]["aggregated"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("freedom", "expected"), [(1, 12.706204736), (4, 2.776445105), (30, 2.042272456)]
)
def test_student_quantiles(freedom: int, expected: float) -> None:
    from aisim_jax.replay._confidence import t_quantile

    assert t_quantile(freedom) == pytest.approx(expected, abs=1e-8)


def test_intervals_cover_the_mean_over_seeds() -> None:
    from aisim_jax.replay._confidence import over_seeds

    mean, half_width = over_seeds(
        [{"x": 1.0, "kind": "lru"}, {"x": 3.0, "kind": "lru"}]
    )
    assert mean == {"x": 2.0, "kind": "lru"}
    assert half_width == {"x": pytest.approx(12.706204736)}
