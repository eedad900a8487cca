"""Recorded answers on slices of public traces, as inputs of the oracle.

Read from the full set only; TRACE_CASES is empty where that is missing.
"""

from __future__ import annotations

import csv
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml
from goldens import FULL, load_golden
from oracle.replay_inputs import Outcome
from oracle.replay_traffic import read_jsonl
from replay_golden import READ, records


TRACES = FULL / "traces"
INSTANT_MS = 2e-6
BLOCK = 512
TRACE_CASES = tuple(sorted(path.stem for path in (TRACES / "results").glob("p*.yaml")))
COLUMNS = {
    "reused_tokens": "reused_input_tokens",
    "first_reused_tokens": "first_admission_reused_input_tokens",
    "decode_reused_tokens": "decode_reused_input_tokens",
    "prefill_worker": "prefill_worker_idx",
}


def trace_case(name: str) -> dict[str, Any]:
    """The recorded answer with its parsed configuration and trace rows."""
    case = load_golden(f"traces/results/{name}.json")
    text = (TRACES / "results" / f"{name}.yaml").read_text()
    case["config"] = yaml.safe_load(text)
    case["rows"] = trace_rows(TRACES / case["trace"])
    return case


def trace_rows(path: Path) -> list[dict[str, Any]]:
    """Rows in Mooncake columns; those of CSV files share nothing."""
    if path.suffix == ".jsonl":
        return list(read_jsonl(path))
    with path.open(newline="") as stream:
        source = list(csv.DictReader(stream))
    rows, used = [], 0
    for row in source:
        prompt = row.get("ContextTokens") or row["num_prefill_tokens"]
        output = row.get("GeneratedTokens") or row["num_decode_tokens"]
        blocks = -(-int(prompt) // BLOCK)
        lengths = {"input_length": int(prompt), "output_length": int(output)}
        rows.append({**lengths, "hash_ids": list(range(used, used + blocks))})
        used += blocks
    if "TIMESTAMP" in source[0]:
        ticks = [_ticks(row["TIMESTAMP"]) for row in source]
        for row, tick in zip(rows, ticks, strict=True):
            row["timestamp"] = (tick - ticks[0]) / 10_000
    return rows


def _ticks(stamp: str) -> int:
    """Calendar time in whole units of 100 ns."""
    second, fraction = stamp.split(".")
    moment = datetime.fromisoformat(second + "+00:00")
    return int(moment.timestamp()) * 10**7 + int(fraction.ljust(7, "0"))


def trace_differences(case: dict[str, Any], outcome: Outcome) -> list[str]:
    """Every recorded figure that the outcome misses; empty when they agree."""
    found = []
    for number, row in enumerate(records(case)):
        record = outcome.records[row.get("row", number + 1) - 1]
        expected = {COLUMNS.get(name, name): value for name, value in row.items()}
        expected.setdefault("output_tokens", record.request.osl)
        if "reused_input_tokens" in expected:
            reused = expected["reused_input_tokens"]
            expected.setdefault("first_admission_reused_input_tokens", reused)
        readmissions = expected.pop("readmissions", None)
        if readmissions is not None:
            own = max(
                len(record.admissions) - len({p for _, p, _ in record.admissions}), 0
            )
            if own != readmissions:
                found.append(f"row {number}: {own} readmissions, not {readmissions}")
        for name, theirs in expected.items():
            if name == "row":
                continue
            mine = READ[name](record)
            same = mine == theirs
            if isinstance(theirs, int | float) and mine is not None:
                same = abs(mine - theirs) <= INSTANT_MS
            if not same:
                found.append(f"row {number} {name}: {mine} instead of {theirs}")
    return found
