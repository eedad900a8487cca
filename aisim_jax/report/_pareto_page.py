"""The Pareto frontier as one self-contained page that opens offline."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

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
from ._launch import launch_commands
from ._palette import COLOURS


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem;
  padding: 0 1rem; color: #1c2733; background: #fff; }}
h1 {{ font-size: 1.35rem; margin: 0 0 .25rem; }}
h2 {{ font-size: 1.05rem; margin: 1.75rem 0 .5rem; }}
p {{ margin: .25rem 0; }} .faint {{ color: #5b6875; }}
table {{ border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .3rem .6rem; text-align: right; border-bottom: 1px solid #e3e8ed; }}
th {{ color: #5b6875; font-weight: 600; }}
.word {{ text-align: left; }}
pre {{ background: #f4f6f8; padding: .75rem; border-radius: 6px; white-space: pre-wrap; }}
.scroll {{ overflow-x: auto; }}
</style></head><body>
<h1>{title}</h1><p class="faint">{question}</p><p>{answer}</p>
{plot}
<h2>Best deployments</h2><div class="scroll">{table}</div>
{launch}
<p class="faint">{origin}</p>
</body></html>
"""


def pareto_page(report: SweepReport) -> str:
    """HTML with the interactive plot, the best deployments and their commands."""
    import plotly.io

    plot = plotly.io.to_html(
        _figure(report),
        full_html=False,
        include_plotlyjs=True,
        div_id="pareto",  # else random: the same sweep gives the same page
        config={"displaylogo": False, "responsive": True},
    )
    return PAGE.format(
        title=escape(f"Pareto frontier of {report.model}"),
        question=escape(question_text(report)),
        answer=escape(_answer(report.chosen)),
        plot=plot,
        table=_table(report),
        launch=_launch(report),
        origin=escape("Data: " + "; ".join(report.origins)),
    )


def _figure(report: SweepReport) -> dict[str, Any]:
    traces: list[dict[str, Any]] = []
    for mode, title in SERVING_MODES.items():
        rows = report.pareto[mode]
        if rows:
            colour, symbol = COLOURS[mode]
            traces.append(_trace(report, rows, title, colour, symbol, 8))
    if report.chosen is not None:
        colour, symbol = COLOURS["chosen"]
        traces.append(_trace(report, [report.chosen], "chosen", colour, symbol, 16))
    axis = {"gridcolor": "#e3e8ed", "zeroline": False, "rangemode": "tozero"}
    layout = {
        "xaxis": {**axis, "title": {"text": report.speed_label}},
        "yaxis": {**axis, "title": {"text": "tokens/s/GPU"}},
        "plot_bgcolor": "#fff",
        "legend": {"orientation": "h", "y": 1.08},
        "margin": {"l": 70, "r": 20, "t": 30, "b": 60},
        "height": 520,
        "hovermode": "closest",
    }
    return {"data": traces, "layout": layout}


def _trace(
    report: SweepReport,
    rows: Sequence[DeploymentRecord],
    name: str,
    colour: str,
    symbol: str,
    size: int,
) -> dict[str, Any]:
    x, y = zip(*(report.point(row) for row in rows), strict=True)
    shape = "hv" if report.by_latency else "vh"
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(rows) > 1 else "markers",
        "name": name,
        "x": list(x),
        "y": list(y),
        "marker": {"color": colour, "symbol": symbol, "size": size},
        "line": {"color": colour, "width": 1, "shape": shape},
        "text": [_hover(row) for row in rows],
        "hovertemplate": "%{text}<extra>" + name + "</extra>",
    }


def _hover(row: DeploymentRecord) -> str:
    return "<br>".join(
        [
            f"<b>{escape(deployment_layout(row))}</b>, batch {deployment_batch(row)}",
            f"{row.backend} {row.version} on {deployment_systems(row)}",
            f"{row.cluster_tokens_per_s_per_gpu:,.0f} tokens/s/GPU",
            f"{row.tokens_per_s_per_user:,.1f} tokens/s/user",
            f"TTFT {row.ttft_ms:,.0f} ms, TPOT {row.tpot_ms:.2f} ms",
            f"{row.replicas} × {row.gpus_per_replica} GPUs, {deployment_memory(row)} GiB/GPU",
        ]
    )


def _answer(row: DeploymentRecord | None) -> str:
    if row is None:
        return "Nothing in the searched space meets the request."
    return (
        f"Chosen: {row.replicas} × {SERVING_MODES[row.serving_mode]} {deployment_layout(row)}, "
        f"{row.backend} {row.version}, {row.cluster_tokens_per_s_per_gpu:,.0f} "
        f"tokens/s/GPU at {row.tokens_per_s_per_user:,.1f} tokens/s/user."
    )


def _table(report: SweepReport) -> str:
    heads = ["mode", "engine", "layout", "batch", "TTFT ms", "TPOT ms"]
    heads += ["tokens/s/user", "tokens/s/GPU", "GPUs", "memory GiB/GPU"]
    lines = []
    for mode, title in SERVING_MODES.items():
        for row in report.best[mode]:
            cells = [title, f"{row.backend} {row.version}", deployment_layout(row)]
            cells += [deployment_batch(row)]
            cells += [f"{row.ttft_ms:,.0f}", f"{row.tpot_ms:.2f}"]
            cells += [f"{row.tokens_per_s_per_user:,.1f}"]
            cells += [f"{row.cluster_tokens_per_s_per_gpu:,.0f}"]
            cells += [
                f"{row.replicas} × {row.gpus_per_replica}",
                deployment_memory(row),
            ]
            lines.append(_line("td", cells))
    return f"<table>{_line('th', heads)}{''.join(lines)}</table>"


def _line(tag: str, cells: list[str]) -> str:
    shown = [
        f'<{tag} class="word">{escape(cell)}</{tag}>'
        if place < 3
        else f"<{tag}>{escape(cell)}</{tag}>"
        for place, cell in enumerate(cells)
    ]
    return f"<tr>{''.join(shown)}</tr>"


def _launch(report: SweepReport) -> str:
    if report.chosen is None:
        return ""
    commands = launch_commands(report.chosen, report.model, report.question)
    lines = [
        text
        for command in commands
        for text in (f"# {command.title}", command.options_yaml, command.text)
        if text
    ]
    return f"<h2>Start it</h2><pre>{escape(chr(10).join(lines))}</pre>"
