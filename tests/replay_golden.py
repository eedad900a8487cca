"""Golden replay cases as plain inputs of the oracle, and their comparison rule.

A case is the parsed configuration, the rows of its trace and the recorded answer. The
full set is read where it lies beside the checkout, else tests/golden/replay.
"""

from __future__ import annotations

import functools
from typing import Any

import yaml
from goldens import FULL, load_golden
from oracle import replay_traffic as traffic
from oracle.replay_inputs import (
    Engine,
    Outcome,
    Pool,
    Record,
    Request,
    Scenario,
    Tokenizer,
    Transfer,
)
from oracle.replay_timing import Fixed, Polynomial


INSTANT_MS = 1e-6


@functools.cache
def compact_cases() -> dict[str, Any]:
    """The committed copy: every case by name."""
    return load_golden("replay/cases.json")


@functools.cache
def case_names() -> tuple[str, ...]:
    """All recorded cases."""
    full = sorted(path.stem for path in (FULL / "replay").glob("*.yaml"))
    return tuple(full or sorted(compact_cases()))


def load_case(name: str) -> dict[str, Any]:
    """The recorded answer with its parsed `config` and trace `rows`."""
    if not (FULL / "replay" / f"{name}.yaml").exists():
        return compact_cases()[name]
    return full_case(name)


def full_case(name: str) -> dict[str, Any]:
    """The same from the full set."""
    case = load_golden(f"replay/{name}.json")
    case["config"] = yaml.safe_load((FULL / "replay" / f"{name}.yaml").read_text())
    trace = FULL / "replay" / f"{name}.jsonl"
    case["rows"] = traffic.read_jsonl(trace) if trace.exists() else None
    return case


def records(case: dict[str, Any]) -> list[dict[str, Any]]:
    """Recorded requests as one mapping each."""
    return [
        {
            **case.get("request_constants", {}),
            **dict(zip(case["request_columns"], row, strict=True)),
        }
        for row in case["requests"]
    ]


# ---- inputs -------------------------------------------------------------------------


def scenario(case: dict[str, Any]) -> tuple[Scenario, list[str]]:
    """Inputs of the oracle, and the session name of every request."""
    config = case["config"]
    engine = config["engine"]
    load = config["traffic"]["load"]
    requests, names, block_key = _requests(config["traffic"], case.get("rows"))
    roles = {role: _pool(case, role) for role in engine["workers"]}
    stage = engine.get("tokenization")
    cap = config["traffic"].get("stop", {}).get("max_virtual_time_seconds")
    return Scenario(
        requests=requests,
        block_key=block_key,
        decode=roles.get("aggregated") or roles["decode"],
        prefill=roles.get("prefill"),
        transfer=_transfer(engine.get("kv_transfer") or {}),
        max_in_flight=load["concurrency"] if load["type"] == "concurrency" else None,
        max_virtual_time_ms=None if cap is None else cap * 1000.0,
        tokenizer=Tokenizer(**stage) if stage else None,
    ), names


def _requests(config: dict[str, Any], rows: list[dict[str, Any]] | None):
    source, load = config["source"], config["load"]
    if source["type"] == "trace":
        assert rows is not None
        return traffic.mooncake(rows, source["block_size"], load.get("speedup", 1.0))
    stop = config["stop"]
    count = stop.get("requests", stop.get("sessions"))
    rate = load.get("requests_per_second", load.get("sessions_per_second"))
    if load["type"] == "poisson":
        arrivals = traffic.poisson(count, rate, load.get("seed", 42))
    elif load["type"] == "constant_rate":
        arrivals = traffic.constant_rate(count, rate)
    else:
        arrivals = [0.0] * count
    if source["type"] == "synthetic":
        isl, osl = source["input_tokens"], source["output_tokens"]
        requests = [Request(i, isl, osl, at, i) for i, at in enumerate(arrivals)]
        block_key = traffic.shared_prefix(source.get("cached_prefix_tokens", 0))
    else:
        requests, block_key = traffic.synthetic_sessions(source, arrivals)
    return requests, [f"session_{request.session}" for request in requests], block_key


def _asked(config: dict[str, Any]) -> dict[str, Any]:
    """What a run that failed would have resolved: one aggregated worker, as asked."""
    worker = config["engine"]["workers"]["aggregated"]
    rank = {
        "backend": config["engine"]["backend"],
        "block_size": worker["kv_cache"]["block_size"],
        "num_gpu_blocks": worker["kv_cache"]["capacity"]["blocks"],
        "max_num_batched_tokens": worker["scheduler"]["max_batched_tokens"],
        "max_num_seqs": worker["scheduler"]["max_sequences"],
        "max_model_len": config["engine"]["context_length"],
        "enable_prefix_caching": True,
        "prefill_schedule_interval": 1,
        "prefill_decode_interval": 0,
        "timing_model": worker["timing"],
    }
    workers = {"initial_workers": 1, "startup_delay_ms": 0.0}
    return {"engine": {"dp_size": 1, "rank": rank}, "topology": {"workers": workers}}


def _pool(case: dict[str, Any], role: str) -> Pool:
    answer = case.get("resolved") or _asked(case["config"])
    resolved, topology = answer["engine"], answer["topology"]
    if role != "aggregated":
        resolved, topology = resolved[role], topology[role]
    else:
        topology = topology["workers"]
    rank = resolved["rank"]
    timing = rank["timing_model"]
    drafts = case["config"]["engine"].get("speculation") or {}
    return Pool(
        engine=Engine(
            policy=rank["backend"],
            block_size=rank["block_size"],
            num_blocks=rank["num_gpu_blocks"],
            max_batched_tokens=rank["max_num_batched_tokens"],
            max_sequences=rank["max_num_seqs"],
            max_model_len=rank.get("max_model_len"),
            chunked_prefill=case["config"]["engine"].get(
                "enable_chunked_prefill", True
            ),
            prefix_caching=rank["enable_prefix_caching"],
            prefill_schedule_interval=rank["prefill_schedule_interval"],
            prefill_decode_interval=rank["prefill_decode_interval"],
            acceptance=tuple(drafts.get("acceptance_rates", ())),
            speculation_seed=drafts.get("seed", 42),
        ),
        timing=Fixed(timing["prefill_ms"], timing["decode_ms"])
        if timing["type"] == "fixed"
        else Polynomial(),
        workers=topology["initial_workers"],
        ranks=resolved["dp_size"],
        startup_ms=topology["startup_delay_ms"],
    )


def _transfer(config: dict[str, Any]) -> Transfer:
    return Transfer(
        bytes_per_token=config.get("bytes_per_token", 0),
        bandwidth_gb_per_s=config.get("bandwidth_gb_per_second"),
        full_prompt=config.get("timing_mode") == "full_prompt",
    )


# ---- comparison ---------------------------------------------------------------------


def differences(
    case: dict[str, Any],
    outcome: Outcome,
    names: list[str],
    tolerance: float = INSTANT_MS,
) -> list[str]:
    """Every recorded figure that the outcome misses; empty when they agree."""
    found: list[str] = []

    def close(where: str, mine: Any, theirs: Any) -> None:
        if mine is None or theirs is None or isinstance(theirs, str):
            same = mine == theirs
        else:
            same = abs(mine - theirs) <= tolerance
        if not same:
            found.append(f"{where}: {mine} instead of {theirs}")

    by_name = {
        (name, record.request.turn): record
        for name, record in zip(names, outcome.records, strict=True)
    }
    ended = sum(record.status is not None for record in outcome.records)
    close("requests", ended, len(case["requests"]))
    tokens = case.get("token_times_ms") or [None] * len(case["requests"])
    for row, times in zip(records(case), tokens, strict=True):
        record = by_name[row["session"], row["turn"]]
        where = f"{row['session']}/{row['turn']}"
        for column, value in row.items():
            if column in READ:
                close(f"{where} {column}", READ[column](record), value)
        found += _admissions(where, record, row["admissions"], close)
        if times is not None:
            close(f"{where} tokens", len(record.token_ms), len(times))
            for mine, theirs in zip(record.token_ms, times, strict=False):
                close(f"{where} token", mine, theirs)
    found += _passes(case, outcome, close)
    if case.get("preemptions") is not None:
        close("preemptions", outcome.preemptions, case["preemptions"])
    events = case.get("kv_cache_events")
    if events:
        close("blocks stored", outcome.blocks_stored, events["blocks_stored"])
        close("blocks removed", outcome.blocks_removed, events["blocks_removed"])
    return found


def _gap(record: Record) -> float | None:
    count = len(record.token_ms)
    if count < 2:
        return None
    return (record.token_ms[-1] - record.token_ms[0]) / (count - 1)


def _since_arrival(record: Record, place: int) -> float | None:
    if not record.token_ms:
        return None
    assert record.arrival_ms is not None
    return record.token_ms[place] - record.arrival_ms


READ = {
    "arrival_ms": lambda r: r.arrival_ms,
    "input_tokens": lambda r: r.request.isl,
    "requested_output_tokens": lambda r: r.request.osl,
    "output_tokens": lambda r: len(r.token_ms),
    "status": lambda r: r.status,
    "first_admit_ms": lambda r: r.first_admit_ms,
    "first_token_ms": lambda r: r.token_ms[0] if r.token_ms else None,
    "last_token_ms": lambda r: r.token_ms[-1] if r.token_ms else None,
    "terminal_time_ms": lambda r: r.terminal_ms,
    "ttft_ms": lambda r: _since_arrival(r, 0),
    "ttst_ms": lambda r: r.token_ms[1] - r.token_ms[0] if len(r.token_ms) > 1 else None,
    "itl_ms": _gap,
    "e2e_latency_ms": lambda r: _since_arrival(r, -1),
    "worker": lambda r: r.worker,
    "reused_input_tokens": lambda r: r.reused(("agg", "prefill")),
    "first_admission_reused_input_tokens": lambda r: r.first_reused,
    "decode_reused_input_tokens": lambda r: r.reused(("decode",)),
    "prefill_worker_idx": lambda r: r.prefill_worker,
    "prefill_admit_ms": lambda r: r.prefill_admit_ms,
    "source_held_ms": lambda r: r.source_held_ms,
    "destination_reserved_ms": lambda r: r.destination_reserved_ms,
    "destination_activated_ms": lambda r: r.destination_activated_ms,
    "decode_admit_ms": lambda r: r.decode_admit_ms,
    "source_released_ms": lambda r: r.source_released_ms,
}


def _admissions(where, record, rows, close) -> list[str]:
    if len(rows) != len(record.admissions):
        return [f"{where}: admissions {record.admissions} instead of {rows}"]
    for mine, theirs in zip(record.admissions, rows, strict=True):
        for name, own, other in zip(("at", "pool", "reuse"), mine, theirs, strict=True):
            close(f"{where} admission {name}", own, other)
    return []


def _passes(case, outcome, close) -> list[str]:
    log = case.get("passes")
    if log is None:
        return []
    columns = log["columns"]
    order = ("start_ms", "pool", "worker", "end_ms")
    mine = [[getattr(row, column) for column in columns] for row in outcome.passes]
    keys = [columns.index(column) for column in order if column in columns]
    mine.sort(key=lambda row: [row[k] for k in keys])
    theirs = sorted(log["rows"], key=lambda row: [row[k] for k in keys])
    if len(mine) != len(theirs):
        return [f"{len(mine)} passes instead of {len(theirs)}"]
    for number, (own, other) in enumerate(zip(mine, theirs, strict=True)):
        for column, a, b in zip(columns, own, other, strict=True):
            close(f"pass {number} {column}", a, b)
    return []


# ---- aggregates ---------------------------------------------------------------------

UNDETERMINED = {"kv_eviction_policy", "prediction_provenance"}
BINNED = ("itl_ms", "output_token_throughput_per_user")
BINNED_LABELS = ("median", "p75", "p90", "p95", "p99")


def summary_differences(
    recorded: dict[str, Any], figures: dict[str, float], exact_bins: bool = True
) -> list[str]:
    """Recorded aggregates that the figures miss by more than 1e-9 relative.

    exact_bins: whether percentiles of gaps must be those of the histogram too; else they
    may lie 0.1 % off.
    """
    found = []
    for name, theirs in recorded.items():
        if name in UNDETERMINED or name.endswith("gpus_per_worker"):
            continue
        label, _, rest = name.partition("_")
        binned = rest in BINNED and label in BINNED_LABELS and not exact_bins
        mine = figures.get(name, 0.0)
        limit = (2.1e-3 if binned else 1e-9) * max(abs(theirs), 1e-3)
        if abs(mine - theirs) > limit:
            found.append(f"{name}: {mine} instead of {theirs}")
    return found
