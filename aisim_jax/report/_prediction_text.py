"""A prediction as a person reads it in a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from aisim_jax.replay import Prediction


COLUMNS = ("mean", "min", "max", "p99", "p90", "p75", "std")

DISTRIBUTIONS = {
    "Time to First Token (ms)": ("ttft_ms", "num_ttft_samples"),
    "Time to Second Token (ms)": ("ttst_ms", "num_tpot_samples"),
    "Request Latency (ms)": ("e2e_latency_ms", "num_e2e_latency_samples"),
    "Inter Token Latency (ms)": ("itl_ms", "num_tpot_samples"),
    "Output Tokens/s Per User": (
        "output_token_throughput_per_user",
        "num_tpot_samples",
    ),
}

SINGLES = {
    "Output Token Throughput (tokens/s)": "output_throughput_tok_s",
    "Output Token Throughput Per GPU (tokens/s)": "output_throughput_tok_s_per_gpu",
    "Request Throughput (requests/s)": "request_throughput_rps",
    "Goodput (requests/s)": "goodput_request_throughput_rps",
    "Goodput (output tokens/s)": "goodput_output_throughput_tok_s",
    "Request Count (requests)": "completed_requests",
}


def prediction_text(prediction: Prediction) -> RenderableType:
    """The table of metrics, then what it stands on."""
    report = prediction.report
    parts: list[RenderableType] = [_distributions(report), Text(), _singles(report)]
    parts += [Text(), *(Text(line) for line in _facts(report))]
    parts += [Text(line, style="dim") for line in _sources(report)]
    for name, section in report.get("details", {}).items():
        parts += [Text(), Text(f"Detail: {name}", style="bold")]
        parts += [Text(line) for line in _lines(section, "  ")]
    return Group(*parts)


def _distributions(report: Mapping[str, Any]) -> Table:
    half_width = report.get("confidence_half_width")
    table = _table("Predicted LLM serving metrics")
    table.add_column("Metric", no_wrap=True)
    headings = ["avg", *COLUMNS[1:]]
    if half_width is not None:
        headings.insert(1, "±")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for label, (quantity, samples) in DISTRIBUTIONS.items():
        cells = ["–"] * len(headings)
        if report[samples]:
            cells = [_number(report[f"{name}_{quantity}"]) for name in COLUMNS]
            if half_width is not None:
                cells.insert(1, _number(half_width[f"mean_{quantity}"]))
        table.add_row(label, *cells)
    return table


def _singles(report: Mapping[str, Any]) -> Table:
    half_width = report.get("confidence_half_width", {})
    table = _table(None)
    table.show_header = False
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    for label, key in SINGLES.items():
        if key in report:
            margin = half_width.get(key)
            table.add_row(
                label,
                _number(report[key]),
                "" if margin is None else f"± {_number(margin)}",
            )
    return table


def _table(title: str | None) -> Table:
    return Table(
        title=title,
        title_justify="left",
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
    )


def _number(value: float) -> str:
    """Whole counts as they are; otherwise about five digits."""
    if isinstance(value, int):
        return f"{value:,}"
    size = abs(value)
    return f"{value:,.{2 if size < 1000 else 1 if size < 10000 else 0}f}"


def _facts(report: Mapping[str, Any]) -> list[str]:
    """What the latencies leave out, and how hard the deployment worked."""
    lines = [f"Note: {note}" for note in report["notes"]]
    if report["rejected_requests"]:
        lines.append(
            f"Rejected: {report['rejected_requests']:,.0f} of "
            f"{report['num_requests']:,.0f} requests ({report['rejected_share']:.1%}); "
            "the latencies describe the others."
        )
        lines += [
            f"  {one['requests']:,}: {one['sentence']}"
            for one in report["rejection_reasons"]
        ]
    if report["unfinished_requests"]:
        lines.append(
            f"Unfinished at the end of the simulated time: "
            f"{report['unfinished_requests']:,.0f} requests."
        )
    lines.append(
        f"Queue: {report['mean_queue_ms']:,.2f} ms on average before the first "
        f"admission, p99 {report['p99_queue_ms']:,.2f} ms; at most "
        f"{report['max_waiting_requests']:,.0f} requests wait and "
        f"{report['max_admitted_requests']:,.0f} are in the engine."
    )
    busy = "; ".join(
        f"{role} {share:.1%}" for role, share in report.get("busy_share", {}).items()
    )
    if busy:
        lines.append(f"Busy: {busy} of {report['duration_ms'] / 1000:,.3f} s.")
    peak = "; ".join(
        f"{role} {share:.1%}" for role, share in report.get("peak_kv_share", {}).items()
    )
    if peak:
        lines.append(f"KV cache at its fullest: {peak}.")
    if report["preemptions"]:
        lines.append(f"Preemptions: {report['preemptions']:,.0f}.")
    lines.append(
        f"Prefix cache: {report['prefix_cache_reused_ratio']:.1%} of prompt tokens "
        "reused, "
        f"{report['first_admission_prefix_cache_reused_ratio']:.1%} at first admission."
    )
    if "seeds" in report:
        lines.append(
            f"Means over {report['seeds']} seeds; ± is half of the 95 % interval."
        )
    lines.append(f"Simulated in {report['wall_time_ms']:,.1f} ms.")
    return lines


def _sources(report: Mapping[str, Any]) -> list[str]:
    lines = [
        f"KV cache ({role}): {one['dtype']}, {one['source']}"
        for role, one in report.get("kv_cache_precision", {}).items()
    ]
    for role, one in report["prediction_provenance"].items():
        version = one["data_version"]
        data = f"data {version}" if version else one["data_version_unavailable_reason"]
        lines.append(
            f"Timing ({role}): {one['estimator']}, {one['timing_source']}; {data}"
        )
    return lines


def _lines(value: Any, indent: str) -> list[str]:
    """Nested mappings as indented lines."""
    lines = []
    for name, item in sorted(value.items()):
        if isinstance(item, Mapping):
            lines += [f"{indent}{name}:", *_lines(item, indent + "  ")]
        else:
            lines.append(f"{indent}{name}: {item}")
    return lines
