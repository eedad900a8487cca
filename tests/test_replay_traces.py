"""Replays of slices of public traces, read in their own formats.

Instants to 2e-6 ms, counts exactly, aggregates to 1e-9; replays priced from performance
data to 1e-3 of every instant and 1e-4 of the aggregates.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml
from goldens import COMPACT, FULL, load_golden
from replay_answers import predicted, printed_rows, unlike_row, unlike_summary
from replay_golden import records


INSTANT_MS = 2e-6
FORMATS = {"azure": "azure", "vidur": "vidur"}
# The others replay for long.
QUICK = (
    "o01_llama8b_h100_vllm_chat",
    "p13_conv_small_pool",
)
COLUMNS = {
    "reused_tokens": "reused_input_tokens",
    "first_reused_tokens": "first_admission_reused_input_tokens",
    "readmissions": "readmission_count",
    "prefill_worker": "prefill_worker_idx",
}


def trace_names() -> list[str]:
    """Every recorded case of the full set, else of the committed copy."""
    full = sorted(path.stem for path in (FULL / "traces/results").glob("*.yaml"))
    committed = (COMPACT / "traces/results").glob("*.json.gz")
    return full or sorted(path.name.partition(".")[0] for path in committed)


def named(kind: str) -> list[Any]:
    """Cases whose names begin so."""
    return [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.slow_replay)
        for name in trace_names()
        if name.startswith(kind)
    ]


def trace_case(name: str) -> dict[str, Any]:
    """The recorded answer with its parsed configuration."""
    case = load_golden(f"traces/results/{name}.json")
    written = FULL / "traces/results" / f"{name}.yaml"
    if written.exists():
        case["config"] = yaml.safe_load(written.read_text())
    return case


def answer(case: dict[str, Any]) -> Any:
    """The case predicted from the slice itself rather than from a converted copy."""
    config = copy.deepcopy(case["config"])
    source = config["traffic"]["source"]
    full = FULL / "traces" / case["trace"]
    path = full if full.exists() else COMPACT / "traces" / f"{case['trace']}.gz"
    source["paths"] = [path.name]
    origin = case["trace"].partition("_")[0]
    if origin in FORMATS:
        source["format"] = FORMATS[origin]
        del source["block_size"]
    return predicted(config, path.parent)


def unlike_requests(
    case: dict[str, Any], prediction: Any, within_ms: float, relative: float = 0.0
) -> list[str]:
    """Recorded figures of requests that their printed records miss."""
    run = prediction.runs[0]
    names = run.workload.session_names
    printed = printed_rows(prediction)
    lines = [
        (names[session], turn)
        for session, turn in zip(
            run.workload.session.tolist(), run.workload.turn.tolist(), strict=True
        )
    ]
    found = []
    recorded = records(case)
    assert len(printed) == len(recorded)
    for number, row in enumerate(recorded):
        place = row.pop("row", number + 1) - 1
        theirs = {COLUMNS.get(name, name): value for name, value in row.items()}
        mine = printed[lines[place]]
        if theirs["status"] == "completed":
            theirs.setdefault("output_tokens", mine["requested_output_length"])
        if "reused_input_tokens" in theirs:
            reused = theirs["reused_input_tokens"]
            theirs.setdefault("first_admission_reused_input_tokens", reused)
        found += unlike_row(
            f"row {place + 1}", mine, theirs, within_ms=within_ms, relative=relative
        )
    return found


@pytest.mark.parametrize("name", named("p"))
def test_replay_of_a_public_trace_equals_the_recorded_one(name: str) -> None:
    case = trace_case(name)
    prediction = answer(case)
    assert not unlike_requests(case, prediction, INSTANT_MS)[:5]
    assert not unlike_summary(prediction.report, case["summary"])


@pytest.mark.parametrize("name", named("o"))
def test_replay_of_a_public_trace_priced_from_data_is_within_a_thousandth(
    name: str,
) -> None:
    case = trace_case(name)
    prediction = answer(case)
    assert not unlike_requests(case, prediction, INSTANT_MS, relative=1e-3)[:5]
    assert not unlike_summary(prediction.report, case["summary"], relative=1e-4)
