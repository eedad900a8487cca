"""Where the memory of one GPU goes, and what fits in the rest."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from aisim_jax._units import GIB
from aisim_jax.memory import CapacityReport

from ._deployment import layout_words


class MemoryShare(NamedTuple):
    """One use of a GPU's memory, bytes, with the character and colour of its bar."""

    name: str
    memory_bytes: float
    mark: str
    colour: str


def memory_shares(report: CapacityReport) -> list[MemoryShare]:
    """Uses of one GPU's memory in the order in which they are taken."""
    loads = report.loads
    pool = max(report.pool_bytes, 0.0)
    uses = [
        MemoryShare("weights", loads.weights, "█", "blue"),
        MemoryShare("activations", loads.activations, "▓", "magenta"),
        MemoryShare("runtime", loads.other, "▒", "yellow"),
        MemoryShare("communication", loads.nccl, "◆", "cyan"),
        MemoryShare("reserved", loads.reserved, "▪", "white"),
        MemoryShare("CUDA graphs", loads.graphs, "○", "white"),
        MemoryShare("KV cache", pool, "░", "green"),
    ]
    rest = loads.capacity - sum(use.memory_bytes for use in uses)
    uses.append(MemoryShare("left free", max(rest, 0.0), " ", ""))
    return [use for use in uses if use.memory_bytes > 0]


def capacity_text(report: CapacityReport, width: int) -> RenderableType:
    """Breakdown bar, its table, what the rest holds, and the refusal if there is one."""
    shares = memory_shares(report)
    title = (
        f"{report.model} · {layout_words(report.layout)} · {report.backend} {report.version} on "
        f"{report.system} · {report.memory_fraction:g} of memory"
    )
    parts: list[RenderableType] = [
        Text(title, style="bold"),
        memory_bar(shares, report.loads.capacity, min(width, 80) - 2),
        _shares_table(shares, report.loads.capacity),
        Text(),
        Text(_facts(report)),
    ]
    if report.refusal is not None:
        parts.append(Text(f"Does not fit: {report.refusal}.", style="red bold"))
    return Group(*parts)


def capacity_json(report: CapacityReport) -> str:
    """The report as JSON."""
    return json.dumps(report.as_dict(), indent=2)


def memory_bar(
    shares: Sequence[MemoryShare], capacity_bytes: float, width: int
) -> Text:
    """One stacked bar of `width` characters; every use gets at least one of them."""
    total = max(capacity_bytes, sum(share.memory_bytes for share in shares))
    bar = Text("│")
    filled = 0
    reached = 0.0
    for place, share in enumerate(shares):
        reached += share.memory_bytes
        left = len(shares) - 1 - place
        end = max(round(reached / total * width), filled + 1)
        end = min(end, width - left)
        bar.append(share.mark * (end - filled), share.colour)
        filled = end
    bar.append(" " * (width - filled) + "│")
    return bar


def _shares_table(shares: Sequence[MemoryShare], capacity_bytes: float) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    table.add_column("")
    table.add_column("memory of one GPU")
    table.add_column("GiB", justify="right")
    table.add_column("share", justify="right")
    for share in shares:
        gib = f"{share.memory_bytes / GIB:.2f}"
        portion = f"{share.memory_bytes / capacity_bytes:.1%}"
        table.add_row(Text(share.mark * 2, share.colour), share.name, gib, portion)
    table.add_row("", "capacity", f"{capacity_bytes / GIB:.2f}", "100.0%")
    return table


def _facts(report: CapacityReport) -> str:
    least = report.smallest_tp
    widths = "" if least is None else f"; smallest tp that holds one context: {least}"
    if report.pool_bytes <= 0:
        missing = f"{-report.pool_bytes / GIB:.2f} GiB are missing"
        return f"No room for a KV cache: {missing} on each GPU{widths}."
    limit = report.model_context_tokens
    own = f", {limit:,} by the model" if limit else ""
    one = ""
    if report.context_tokens:
        need_gib = report.context_bytes / GIB
        one = (
            f"; a {report.context_tokens:,}-token one takes {need_gib:.2f} GiB{widths}"
        )
    lines = [
        f"KV cache: {report.tokens:,} tokens of {report.kv_bytes_per_token:,.0f} bytes "
        f"({report.kv_quant}), {report.blocks:,} blocks of {report.block_tokens}.",
        f"Longest context: {report.longest_context_tokens:,} tokens by memory{own}"
        f"{one}.",
    ]
    if report.caution is not None:
        lines.append(f"Requests at once: none; {report.caution}.")
    elif report.safe_requests is not None:
        lines.append(
            f"Requests at once: {report.safe_requests:,} at full length (never "
            f"preempted), {report.steady_requests:,} half-way through their output."
        )
    return "\n".join(lines)
