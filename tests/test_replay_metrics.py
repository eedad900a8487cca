"""Reports of replayed scenarios: from the recorded instants to the recorded figures."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from goldens import COMPACT, FULL, load_golden


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


def golden_names() -> list[str]:
    folder = FULL / "replay" if FULL.exists() else COMPACT / "replay"
    names = {Path(one.name).stem.split(".")[0] for one in folder.glob("*.json*")}
    trace_names = {Path(one.name).stem for one in folder.glob("*.jsonl")}
    return sorted(
        names - trace_names | {n for n in names if (folder / f"{n}.json").exists()}
    )


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
    from aisim_jax.replay._outcome import Passes, TokenTimes
    from aisim_jax.traffic import Workload

    table = columns(golden)
    figures, resolved = golden["summary"], golden["resolved"]
    size = len(golden["requests"])
    ttst = numbers(table["ttst_ms"])
    first = numbers(table["first_token_ms"])
    times = passes = None
    if "token_times_ms" in golden:
        rows = golden["token_times_ms"]
        start = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
        flat = np.array([at for row in rows for at in row], float)
        times = TokenTimes(flat, start)
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
    replayed = Replayed(
        arrival_ms=numbers(table["arrival_ms"]),
        first_admit_ms=numbers(table["first_admit_ms"]),
        first_token_ms=first,
        second_token_ms=first + ttst,
        last_token_ms=numbers(table["last_token_ms"]),
        terminal_ms=numbers(table["terminal_time_ms"]),
        status=np.array(
            [COMPLETED if s == "completed" else REJECTED for s in table["status"]]
        ),
        output_tokens=np.array(table["output_tokens"]),
        worker=np.zeros(size, np.int64),
        reused_tokens=np.array(
            [max((a[2] for a in row), default=0) for row in table["admissions"]]
        ),
        first_reused_tokens=np.array(
            [one or 0 for one in table["first_admission_reused_input_tokens"]]
        ),
        preemptions=golden.get("preemptions", 0),
        committed_prefill_tokens=figures["committed_prefill_tokens"],
        engine="recorded",
        passes=None if passes is None else lambda: passes,
        token_times=None if times is None else lambda: times,
    )
    zeros = np.zeros(size)
    workload = Workload(
        arrival_ms=replayed.arrival_ms,
        isl_tokens=np.array(table["input_tokens"]),
        osl_tokens=np.array(table["requested_output_tokens"]),
        session=np.arange(size),
        turn=np.zeros(size, np.int64),
        delay_ms=zeros,
        max_in_flight=resolved["max_in_flight"],
        max_virtual_time_ms=resolved["max_sim_time_ms"],
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
    for name in golden_names():
        golden = load_golden(f"replay/{name}.json")
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
