"""Where the memory of one GPU goes, and what fits in the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text


GIB = 2**30


@dataclass(frozen=True, slots=True)
class MemoryShare:
    """One use of a GPU's memory, bytes."""

    name: str
    memory_bytes: float


@dataclass(frozen=True, slots=True)
class CapacityReport:
    """KV capacity of one rank (one GPU); lengths are tokens.

    `shares` add up to the capacity. `requests` is how many requests of the asked
    prompt and output length fit at once. `smallest_tp` is the least tensor-parallel
    size that holds one of them (0 = none of those tried).
    """

    title: str
    capacity_bytes: int
    shares: tuple[MemoryShare, ...]
    kv_bytes: int
    kv_bytes_per_token: float
    kv_tokens: int
    block_size_tokens: int
    blocks: int
    kv_precision: str
    isl: int
    osl: int
    requests: int
    smallest_tp: int
    remedy: str = ""
    origin: str = ""


# Each use has its own character: the bar reads without colour.
MARKS = "█▓▒░◆▪○ "
COLOURS = ("blue", "magenta", "yellow", "cyan", "green", "red", "white", "")


def capacity_text(report: CapacityReport, width: int) -> RenderableType:
    """Breakdown bar, its table, and what the rest holds."""
    parts: list[RenderableType] = [Text(report.title, style="bold")]
    parts.append(memory_bar(report.shares, report.capacity_bytes, min(width, 80)))
    parts.append(_shares_table(report))
    parts.append(Text(_facts(report)))
    if report.remedy:
        parts.append(Text(report.remedy, style="red"))
    if report.origin:
        parts.append(Text(f"Data: {report.origin}", style="dim"))
    return Group(*parts)


def memory_bar(
    shares: Sequence[MemoryShare], capacity_bytes: float, width: int
) -> Text:
    """One stacked bar; a positive share is never narrower than one character."""
    total = max(capacity_bytes, sum(share.memory_bytes for share in shares))
    bar = Text("│")
    filled = 0
    reached = 0.0
    for place, share in enumerate(shares):
        reached += share.memory_bytes
        end = max(round(reached / total * width), filled)
        end = max(end, filled + 1) if share.memory_bytes > 0 else end
        cells = min(end, width) - filled
        bar.append(MARKS[place % len(MARKS)] * cells, COLOURS[place % len(COLOURS)])
        filled += cells
    bar.append(" " * (width - filled) + "│")
    return bar


def _shares_table(report: CapacityReport) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    table.add_column("")
    table.add_column("memory of one GPU")
    table.add_column("GiB", justify="right")
    table.add_column("share", justify="right")
    for place, share in enumerate(report.shares):
        mark = Text(MARKS[place % len(MARKS)] * 2, COLOURS[place % len(COLOURS)])
        portion = share.memory_bytes / report.capacity_bytes
        gib = f"{share.memory_bytes / GIB:.2f}"
        table.add_row(mark, share.name, gib, f"{portion:.1%}")
    table.add_section()
    table.add_row("", "capacity", f"{report.capacity_bytes / GIB:.2f}", "100.0%")
    return table


def _facts(report: CapacityReport) -> str:
    lines = [
        f"KV cache: {report.kv_tokens:,} tokens at "
        f"{report.kv_bytes_per_token:,.0f} bytes each ({report.kv_precision}); "
        f"{report.blocks:,} blocks of {report.block_size_tokens}.",
        f"Longest context of one request: {report.kv_tokens:,} tokens.",
        f"Requests of {report.isl:,} + {report.osl:,} tokens at once: "
        f"{report.requests:,}.",
    ]
    if report.smallest_tp:
        lines.append(f"Smallest tp that holds one such request: {report.smallest_tp}.")
    return "\n".join(lines)
