"""The price of one forward pass, operation by operation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text


BAR_WIDTH = 20


@dataclass(frozen=True, slots=True)
class OperationRow:
    """One operation over all its layers; `origin` says how its latency was found."""

    name: str
    latency_ms: float
    origin: str


@dataclass(frozen=True, slots=True)
class EstimateReport:
    """One forward pass: which worker, which step, its time, its operations.

    `data` names the measured tables: system, backend, version, digest.
    """

    worker: str
    step: str
    latency_ms: float
    operations: Sequence[OperationRow]
    data: Mapping[str, str]


def estimate_json(report: EstimateReport) -> str:
    """The estimate as JSON; `share` is the fraction of the whole pass."""
    total = report.latency_ms or 1.0
    record = asdict(report)
    record["operations"] = [
        {**asdict(row), "share": row.latency_ms / total} for row in report.operations
    ]
    return json.dumps(record, indent=2)


def estimate_text(report: EstimateReport) -> RenderableType:
    """Total first, then the operations, slowest first, then where they come from."""
    parts: list[RenderableType] = [
        Text(report.worker, style="bold"),
        Text(f"{report.step}: {report.latency_ms:.3f} ms", style="green bold"),
        Text(),
        _table(report),
        Text(),
        Text(_by_origin(report)),
    ]
    data = report.data
    parts.append(
        Text(
            f"Data: {data['system']}, {data['backend']} {data['version']}: measured "
            f"tables {data['digest'].removeprefix('sha256:')[:10]}",
            style="dim",
        )
    )
    return Group(*parts)


def _table(report: EstimateReport) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    table.add_column("operation")
    table.add_column("ms", justify="right")
    table.add_column("share", justify="right")
    table.add_column("", no_wrap=True)
    table.add_column("origin")
    total = report.latency_ms or 1.0
    shown = [row for row in report.operations if row.latency_ms > 0]
    for row in sorted(shown, key=lambda row: -row.latency_ms):
        share = row.latency_ms / total
        bar = "█" * round(share * BAR_WIDTH)
        table.add_row(
            row.name, f"{row.latency_ms:.4f}", f"{share:.1%}", bar, row.origin
        )
    return table


def _by_origin(report: EstimateReport) -> str:
    """How much of the time was measured, interpolated and so on."""
    total = report.latency_ms or 1.0
    shares: dict[str, float] = {}
    for row in report.operations:
        shares[row.origin] = shares.get(row.origin, 0.0) + row.latency_ms / total
    ranked = sorted(shares.items(), key=lambda item: -item[1])
    return "Of the time: " + ", ".join(f"{share:.1%} {how}" for how, share in ranked)
