"""A search for deployments as a person reads it in a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from aisim_jax.models import Layout
from aisim_jax.recommend.search import Candidate, Dropped, Outcome, Recommendation

from ._terminal_plot import Series, terminal_plot


SHOWN = 15
MARKERS = {"aggregated": "o", "disaggregated": "x"}
ROLE_LETTERS = {"aggregated": "", "prefill": "P ", "decode": "D "}
DROPPED = {
    "gpu_budget": "need more GPUs than there are",
    "kv_capacity": "leave too little room for the KV cache",
    "backend_topology": "split the model in a way that the engine cannot run",
    "candidate_materialization": "cannot be priced",
}


def recommendation_text(
    answer: Recommendation, files: Sequence[str], width: int
) -> RenderableType:
    """Ranking, trade-off curve and coverage; `files` name the chosen, in their order."""
    parts: list[RenderableType] = [_headline(answer)]
    chosen = answer.chosen
    if chosen:
        parts += [Text(), _ranking(answer, chosen, files, width)]
        if len(chosen) > SHOWN:
            parts.append(Text(f"and {len(chosen) - SHOWN:,} more, in rank order."))
    if answer.front is not None and chosen:
        parts += _plot(answer, width)
    parts += [Text(), *_coverage(answer)]
    parts += [Text(note, style="yellow") for note in answer.notes]
    return Group(*parts)


def _headline(answer: Recommendation) -> Text:
    if answer.chosen:
        text = Text()
        if answer.interrupted:
            text.append("Interrupted; of what was replayed: ", style="red bold")
        best = answer.chosen[0]
        text.append(f"Best by {answer.goal.target}: ", style="green bold")
        text.append(
            f"{deployment_shape(best.candidate)} on {best.candidate.branch.backend}"
        )
        return text
    text = Text("No candidate is feasible.", style="red bold")
    if answer.closest is not None:
        near = answer.outcomes[answer.closest]
        text.append(
            f" The closest is {deployment_shape(near.candidate)} on "
            f"{near.candidate.branch.backend}: {near.verdict.reason}."
        )
    return text


def deployment_shape(candidate: Candidate) -> str:
    """Workers and parallel sizes of every role, e.g. `P 2×tp1 + D 1×tp4`."""
    return " + ".join(
        f"{ROLE_LETTERS[role]}{setting.shape.replicas}×{layout_sizes(setting.shape.layout)}"
        for role, setting in candidate.roles.items()
    )


def layout_sizes(layout: Layout) -> str:
    """The sizes above one, e.g. `tp4 ep4`; `tp1` when there is none."""
    sizes = {
        "tp": layout.tp,
        "pp": layout.pp,
        "dp": layout.dp,
        "etp": layout.moe_tp,
        "ep": layout.moe_ep,
        "cp": layout.cp,
    }
    return (
        " ".join(f"{name}{size}" for name, size in sizes.items() if size > 1) or "tp1"
    )


def _limits(candidate: Candidate) -> str:
    """Tokens of a pass and requests at once, per role."""
    return " + ".join(
        f"{setting.knobs.max_batched_tokens:,}/{setting.knobs.max_sequences}"
        for setting in candidate.roles.values()
    )


def load_label(candidate: Candidate) -> str:
    """The load in few characters, e.g. `32 at once` or `4/s`."""
    load: Mapping[str, Any] = candidate.prediction["traffic"]["load"]
    if "concurrency" in load:
        return f"{load['concurrency']} at once"
    for name in ("requests_per_second", "sessions_per_second"):
        if name in load:
            return f"{load[name]:g}/s"
    return f"x{load.get('speedup', 1):g}"


def _ranking(
    answer: Recommendation, chosen: Sequence[Outcome], files: Sequence[str], width: int
) -> Table:
    """One line a deployment; the name of its file when there is room."""
    shown = chosen[:SHOWN]
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    columns: list[tuple[str, list[str]]] = [
        ("#", [str(rank) for rank in range(1, len(shown) + 1)]),
        ("score", [_score(answer, one) for one in shown]),
        ("GPUs", [str(one.candidate.used_gpus) for one in shown]),
        ("engine", [one.candidate.branch.backend for one in shown]),
        ("workers", [deployment_shape(one.candidate) for one in shown]),
        ("tokens/seqs", [_limits(one.candidate) for one in shown]),
        ("load", [load_label(one.candidate) for one in shown]),
        ("TTFT ms", [_ms(one.metrics["mean_ttft_ms"]) for one in shown]),
        ("TPOT ms", [f"{one.metrics['mean_tpot_ms']:.2f}" for one in shown]),
        ("file", [name.rsplit("/", 1)[-1] for name in files[:SHOWN]]),
    ]
    for optional in ("file", "engine", "load"):
        if sum(max(map(len, [n, *cells])) + 2 for n, cells in columns) > width:
            columns = [one for one in columns if one[0] != optional]
    for name, _ in columns:
        left = name in ("engine", "workers", "file")
        table.add_column(name, justify="left" if left else "right", no_wrap=True)
    for place in range(len(shown)):
        table.add_row(*(cells[place] for _, cells in columns if cells))
    return table


def _score(answer: Recommendation, outcome: Outcome) -> str:
    verdict = outcome.verdict
    if verdict.objectives is not None:
        return " / ".join(f"{value:,.1f}" for value in verdict.objectives.values())
    score = verdict.score or 0.0
    if answer.goal.target in ("ttft", "e2e_latency"):
        return f"{-score:,.1f} ms"
    if answer.goal.target == "min_gpus":
        return f"{-score:.0f} GPUs"
    return f"{score:,.1f}"


def _ms(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _plot(answer: Recommendation, width: int) -> list[RenderableType]:
    series = []
    for mode, marker in MARKERS.items():
        points = [
            (speed, per_gpu)
            for one in answer.chosen
            if one.candidate.branch.mode == mode
            for per_gpu, speed in [tuple((one.verdict.objectives or {}).values())]
        ]
        if points:
            series.append(Series(mode, marker, points))
    picture = terminal_plot(
        series,
        x_label="tokens/s per user",
        y_label="tokens/s per GPU",
        width=min(width, 100),
    )
    title = Rule("Pareto frontier", align="left", style="dim")
    return [Text(), title, Text(picture, no_wrap=True)]


def _coverage(answer: Recommendation) -> list[Text]:
    """How much of the space was evaluated, and why the rest was not."""
    seen = answer.coverage
    lines = [
        f"{seen.legal:,} candidates: {seen.replayed:,} replays stand for "
        f"{seen.stood_for:,} of them in {answer.seconds:.1f} s."
    ]
    missed = [one for one in answer.outcomes if not one.feasible]
    if missed:
        counts: dict[str, int] = {}
        for one in missed:
            name = one.verdict.reason_category or "unknown"
            counts[name] = counts.get(name, 0) + 1
        parts = ", ".join(f"{number:,} {name}" for name, number in counts.items())
        lines.append(f"Not feasible: {parts}.")
    if seen.screened_out:
        lines.append(f"{seen.screened_out:,} could not have won.")
    if seen.left:
        lines.append(f"{seen.left:,} were not replayed.")
    lines += [_dropped_line(one) for one in answer.dropped]
    return [Text(line) for line in lines]


def _dropped_line(group: Dropped) -> str:
    where = "" if group.branch is None else f" ({group.branch.backend}"
    if where:
        where += f", {group.branch.mode}" if group.branch else ""
        where += ")"
    what = DROPPED.get(group.reason_category, group.reason_category)
    number = f"{group.candidates:,} " if group.candidates else "All "
    shape = ""
    if group.shape is not None:
        shape = f"{group.role} {layout_sizes(group.shape.layout)}: "
    return f"{number}{what}{where}: {shape}{group.reason}"
