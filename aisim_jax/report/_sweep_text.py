"""The sweep as a person reads it in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from aisim_jax.recommend import DeploymentRecord

from ._deployment import (
    SERVING_MODES,
    SweepReport,
    deployment_batch,
    deployment_layout,
    deployment_memory,
    deployment_systems,
    question_text,
)
from ._launch import LaunchCommand, launch_commands
from ._terminal_plot import Series, terminal_plot


MARKERS = {"agg": "o", "disagg": "x"}

LOST = {
    "memory": "do not fit in memory",
    "kv": "leave too little room for the KV cache",
    "ttft": "miss the TTFT target",
    "tpot": "miss the TPOT target",
    "request_latency": "miss the request-latency target",
    "no_data": "have no measured data",
    "gpus": "need more GPUs than there are",
    "not_visited": "are skipped by the compatible rules",
}

# What a point is in each serving mode, and what it means to lose nowhere.
POINTS = {
    "agg": ("aggregated", "meet every limit"),
    "disagg": ("prefill and decode workers", "meet the limits of their phase"),
}


def sweep_text(report: SweepReport, width: int) -> RenderableType:
    """The whole sweep as one renderable, laid out for `width` characters."""
    parts: list[RenderableType] = [Text(question_text(report), style="bold")]
    parts.append(_answer(report))
    for mode, title in SERVING_MODES.items():
        rows = report.best[mode]
        if rows:
            heading = f"Best {title} deployments"
            parts += [Text(), deployment_table(rows, heading, width)]
    for name, sentence in report.failures.items():
        parts.append(Text(f"No answer from {name}: {sentence}", style="yellow"))
    plot = pareto_plot(report, width)
    if plot is not None:
        parts.extend([plot, Text()])
    parts.append(_losses(report))
    if report.chosen is not None:
        parts.append(_launch(report.chosen, report))
    parts += [Text(f"Data: {origin}", style="dim") for origin in report.origins]
    return Group(*parts)


def _answer(report: SweepReport) -> Text:
    row = report.chosen
    if row is None:
        return Text(
            "Nothing in the searched space meets the request.", style="red bold"
        )
    mode = SERVING_MODES[row.serving_mode]
    copies = f"{row.replicas} × " if row.replicas > 1 else ""
    text = Text()
    text.append(f"Run {copies}{mode} {deployment_layout(row)}", style="green bold")
    text.append(
        f" with {row.backend} {row.version} on {row.gpus_used} "
        f"{deployment_systems(row)}: {row.cluster_tokens_per_s_per_gpu:,.0f} "
        f"tokens/s/GPU, {row.tokens_per_s_per_user:,.1f} tokens/s/user, TTFT "
        f"{row.ttft_ms:,.0f} ms, TPOT {row.tpot_ms:.1f} ms."
    )
    if row.load_served_percent < 100:
        text.append(
            f" It serves {row.load_served_percent:.1f} % of the load.", style="red"
        )
    if not row.meets_targets:
        text.append(" It misses the targets; it is the closest.", style="red")
    return text


class _Column(NamedTuple):
    """A column and its cells; the least important are dropped on a narrow screen."""

    header: str
    cells: list[str]
    importance: int = 9

    @property
    def width(self) -> int:
        lines = [*self.header.split("\n"), *self.cells]
        return max(len(line) for line in lines)


def deployment_table(rows: Sequence[DeploymentRecord], title: str, width: int) -> Table:
    """Ranked deployments, one a line, in at most `width` characters."""
    columns = _columns(rows)
    while sum(c.width + 1 for c in columns) > width and len(columns) > 4:
        columns.remove(min(columns, key=lambda column: column.importance))
    roomy = sum(column.width + 3 for column in columns) <= width
    table = Table(
        title=title,
        title_justify="left",
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1) if roomy else (0, 0),
    )
    for column in columns:
        text = column.header in ("engine", "system", "layout")
        table.add_column(
            column.header, justify="left" if text else "right", no_wrap=True
        )
    for place, row in enumerate(rows):
        style = "bold" if place == 0 and row.meets_targets else ""
        table.add_row(*(column.cells[place] for column in columns), style=style)
    return table


def _columns(rows: Sequence[DeploymentRecord]) -> list[_Column]:
    engines = [f"{row.backend} {row.version}" for row in rows]
    systems = [deployment_systems(row) for row in rows]
    budgets = [row.workers[0].context_budget_tokens for row in rows]
    columns = [_Column("#", [str(place) for place in range(1, len(rows) + 1)])]
    if len(set(engines)) > 1:
        columns.append(_Column("engine", engines, 6))
    if len(set(systems)) > 1:
        columns.append(_Column("system", systems, 7))
    columns.append(_Column("layout", [deployment_layout(row) for row in rows]))
    columns.append(_Column("batch", [deployment_batch(row) for row in rows]))
    if any(budgets):
        shown = [f"{budget:,}" for budget in budgets]
        columns.append(_Column("prefill\ntokens", shown, 3))
    numbers = [
        ("TTFT\nms", "{:,.0f}", [row.ttft_ms for row in rows], 9),
        ("TPOT\nms", "{:.2f}", [row.tpot_ms for row in rows], 9),
        ("tok/s\n/user", "{:,.1f}", [row.tokens_per_s_per_user for row in rows], 4),
        ("tok/s\n/GPU", "{:,.0f}", [_cluster_rate(row) for row in rows], 9),
        ("req/s", "{:,.2f}", [row.requests_per_s * row.replicas for row in rows], 2),
    ]
    for header, form, values, importance in numbers:
        shown = [form.format(value) for value in values]
        columns.append(_Column(header, shown, importance))
    columns.append(_Column("GPUs", [_gpus(row) for row in rows], 8))
    columns.append(
        _Column("memory\nGiB/GPU", [deployment_memory(row) for row in rows], 1)
    )
    return columns


def _cluster_rate(row: DeploymentRecord) -> float:
    return row.cluster_tokens_per_s_per_gpu


def _gpus(row: DeploymentRecord) -> str:
    if row.replicas == 1:
        return str(row.gpus_used)
    return f"{row.gpus_used} ={row.replicas}×{row.gpus_per_replica}"


def pareto_plot(report: SweepReport, width: int) -> RenderableType | None:
    """Frontiers of both serving modes, with the chosen deployment marked."""
    series = [
        Series(
            title,
            MARKERS[mode],
            [report.point(row) for row in report.pareto[mode]],
        )
        for mode, title in SERVING_MODES.items()
    ]
    if not any(one.points for one in series):
        return None
    if report.chosen is not None:
        series.append(Series("chosen", "★", [report.point(report.chosen)]))
    picture = terminal_plot(
        series,
        x_label=report.speed_label,
        y_label="tokens/s/GPU",
        width=min(width, 100),
    )
    title = Rule("Pareto frontier", align="left", style="dim")
    return Group(Text(), title, Text(picture, no_wrap=True))


def _losses(report: SweepReport) -> Text:
    """What became of the points; a worker that is fast enough is not yet a deployment."""
    total = sum(sum(counts.values()) for counts in report.counts.values())
    parts = [f"{total:,} points evaluated."]
    for mode, (points, met) in POINTS.items():
        counts = report.counts.get(mode, {})
        if not counts:
            continue
        lost = sorted(counts.items(), key=lambda item: -item[1])
        outcomes = [
            f"{sum(counts.values()):,} {points}: {counts.get('meets', 0):,} {met}"
        ]
        outcomes += [f"{n:,} {LOST[reason]}" for reason, n in lost if reason != "meets"]
        parts.append("; ".join(outcomes) + ".")
    return Text("\n".join(parts))


def _launch(row: DeploymentRecord, report: SweepReport) -> RenderableType:
    title = Group(Text(), Rule("Start it", align="left", style="dim"))
    lines: Iterable[str] = (
        line
        for command in launch_commands(row, report.model, report.question)
        for line in _command_lines(command)
    )
    return Group(title, Text("\n".join(lines), overflow="fold"))


def _command_lines(command: LaunchCommand) -> list[str]:
    lines = [f"# {command.title}"]
    if command.options_yaml:
        name = command.text.rsplit(" ", 1)[-1]
        lines += [f"# {name}:", *(f"#   {x}" for x in command.options_yaml.split("\n"))]
    return [*lines, command.text]
