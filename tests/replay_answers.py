"""Predictions of recorded cases, and every recorded figure that they miss."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from math import isclose
from pathlib import Path
from typing import Any


# Names of the per-request records where a recorded column has another one.
PRINTED = {
    "arrival_ms": "arrival_time_ms",
    "input_tokens": "input_length",
    "requested_output_tokens": "requested_output_length",
    "output_tokens": "output_length",
    "status": "terminal_status",
    "worker": "decode_worker_idx",
}
BINNED = ("itl_ms", "output_token_throughput_per_user")
BINNED_LABELS = ("median", "p75", "p90", "p95", "p99")
BIN_WIDTH = 1.0011e-3


def predicted(
    config: Mapping[str, Any], beside: Path, overrides: Iterable[str] = ()
) -> Any:
    """The prediction as `aisim predict` makes it, under the reference's conventions."""
    from aisim_jax.config import load_prediction
    from aisim_jax.replay import predict

    asked = load_prediction(config, ["engine.compat=true", *overrides])
    return predict(asked, capture=True, beside=beside)


def printed_rows(prediction: Any) -> dict[tuple[str, int], dict[str, Any]]:
    """Per-request records by session and turn."""
    rows = map(json.loads, prediction.request_lines())
    return {(row["session_id"], row["turn_index"]): row for row in rows}


def unlike_row(
    where: str,
    printed: Mapping[str, Any],
    recorded: Mapping[str, Any],
    *,
    within_ms: float,
    relative: float = 0.0,
) -> list[str]:
    """Counts and words must be equal; instants and spans may differ so much."""
    found = []
    for column, theirs in recorded.items():
        mine = printed[PRINTED.get(column, column)]
        if mine is None or not column.endswith("_ms"):
            same = mine == theirs
        else:
            same = isclose(mine, theirs, rel_tol=relative, abs_tol=within_ms)
        if not same:
            found.append(f"{where} {column}: {mine} instead of {theirs}")
    return found


def unlike_summary(
    report: Mapping[str, Any], recorded: Mapping[str, Any], relative: float = 1e-9
) -> list[str]:
    """Recorded aggregates that the report misses; binned percentiles may lie 0.1 % off."""
    found = []
    for name, theirs in recorded.items():
        if not isinstance(theirs, int | float):
            continue
        label, _, figure = name.partition("_")
        binned = figure in BINNED and label in BINNED_LABELS
        limit = max(relative, BIN_WIDTH) if binned else relative
        # A spread of equal values is what their rounding leaves.
        if not isclose(report[name], theirs, rel_tol=limit, abs_tol=1e-9):
            found.append(f"{name}: {report[name]} instead of {theirs}")
    return found
