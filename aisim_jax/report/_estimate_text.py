"""The price of one forward pass, operation by operation."""

from __future__ import annotations

from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True, slots=True)
class OperationRow:
    """One operation of a pass; `origin` says how its latency was found."""

    phase: str
    name: str
    latency_ms: float
    origin: str


@dataclass(frozen=True, slots=True)
class EstimateReport:
    """One forward pass: what was asked, its time, its operations."""

    title: str
    iteration: str
    latency_ms: float
    operations: tuple[OperationRow, ...]
    origin: str = ""


def estimate_text(report: EstimateReport) -> RenderableType:
    """Total first, then the operations, slowest first inside each phase."""
    parts: list[RenderableType] = [
        Text(report.title, style="bold"),
        Text(f"{report.iteration}: {report.latency_ms:.3f} ms", style="green bold"),
    ]
    parts.append(_table(report))
    if report.origin:
        parts.append(Text(f"Data: {report.origin}", style="dim"))
    return Group(*parts)


def _table(report: EstimateReport) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    table.add_column("phase")
    table.add_column("operation")
    table.add_column("ms", justify="right")
    table.add_column("share", justify="right")
    table.add_column("", no_wrap=True)
    table.add_column("origin")
    total = sum(row.latency_ms for row in report.operations) or 1.0
    phases = list(dict.fromkeys(row.phase for row in report.operations))
    for phase in phases:
        rows = [row for row in report.operations if row.phase == phase]
        for row in sorted(rows, key=lambda row: -row.latency_ms):
            share = row.latency_ms / total
            table.add_row(
                phase,
                row.name,
                f"{row.latency_ms:.4f}",
                f"{share:.1%}",
                "█" * round(share * 20),
                row.origin,
            )
        table.add_section()
    table.add_row("", "sum", f"{total:.4f}", "100.0%", "", "")
    return table
