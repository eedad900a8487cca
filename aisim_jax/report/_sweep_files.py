"""A sweep as files: JSON, CSV, an interactive page, a picture."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from aisim_jax._errors import InvalidInputError

from ._atomic import write_file
from ._deployment import SERVING_MODES, DeploymentRow, SweepReport
from ._launch import launch_commands


COLUMNS = (
    "rank",
    "serving_mode",
    "backend",
    "version",
    "system",
    "layout",
    "replicas",
    "gpus_per_replica",
    "gpus_used",
    "ttft_ms",
    "tpot_ms",
    "request_latency_ms",
    "tokens_per_s_per_user",
    "tokens_per_s_per_gpu",
    "cluster_tokens_per_s_per_gpu",
    "requests_per_s",
    "concurrency",
    "meets_targets",
)
WORKER_COLUMNS = (
    "workers",
    "tp",
    "pp",
    "dp",
    "moe_tp",
    "moe_ep",
    "cp",
    "batch",
    "context_budget_tokens",
    "memory_gib",
)
ROLES = ("agg", "prefill", "decode")


def deployment_record(row: DeploymentRow) -> dict[str, Any]:
    """One deployment as plain values, workers nested."""
    record: dict[str, Any] = {
        name: getattr(row, name) for name in COLUMNS if hasattr(row, name)
    }
    record["system"] = row.workers[-1].system
    record["workers"] = [
        {"role": worker.role, "system": worker.system}
        | {name: getattr(worker, name) for name in WORKER_COLUMNS}
        for worker in row.workers
    ]
    return record


def sweep_record(report: SweepReport) -> dict[str, Any]:
    """The whole sweep as plain values: the content of result.json."""
    chosen = report.chosen
    return {
        "schema_version": 1,
        "question": dict(report.question),
        "chosen": None if chosen is None else _with_commands(chosen, report),
        "experiments": [
            {
                "name": experiment.name,
                "model": experiment.model,
                "serving_mode": experiment.serving_mode,
                "backend": experiment.backend,
                "system": experiment.system,
                "version": experiment.version,
                "evaluated": experiment.evaluated,
                "lost": dict(experiment.lost),
                "best": [deployment_record(row) for row in experiment.best],
                "pareto": [deployment_record(row) for row in experiment.pareto],
                "origin": experiment.origin,
                "failure": experiment.failure,
            }
            for experiment in report.experiments
        ],
        "notes": list(report.notes),
    }


def _with_commands(row: DeploymentRow, report: SweepReport) -> dict[str, Any]:
    commands = launch_commands(row, report.model, report.question)
    return {
        **deployment_record(row),
        "launch": [command._asdict() for command in commands],
    }


def sweep_json(report: SweepReport) -> str:
    """result.json; a number that has no value is null."""
    return json.dumps(_finite(sweep_record(report)), indent=2, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float) and value - value != 0:
        return None
    return value


def deployments_csv(rows: Iterable[DeploymentRow]) -> str:
    """One line per deployment; worker columns carry their role as prefix."""
    stream = io.StringIO()
    worker_columns = [f"{role}_{name}" for role in ROLES for name in WORKER_COLUMNS]
    writer = csv.DictWriter(stream, [*COLUMNS, *worker_columns], lineterminator="\n")
    writer.writeheader()
    for rank, row in enumerate(rows, 1):
        record = {name: getattr(row, name) for name in COLUMNS if hasattr(row, name)}
        record |= {"rank": rank, "system": row.workers[-1].system}
        for worker in row.workers:
            for name in WORKER_COLUMNS:
                record[f"{worker.role}_{name}"] = getattr(worker, name)
        writer.writerow(record)
    return stream.getvalue()


def best_rows(report: SweepReport) -> list[DeploymentRow]:
    """Best deployments of every serving mode, modes one after the other."""
    return [row for mode in SERVING_MODES for row in report.best(mode)]


def pareto_rows(report: SweepReport) -> list[DeploymentRow]:
    """Frontier points of every serving mode, modes one after the other."""
    return [row for mode in SERVING_MODES for row in report.pareto(mode)]


def write_sweep(report: SweepReport, folder: Path) -> list[Path]:
    """Write result.json, candidates.csv, pareto.csv and pareto.html to `folder`."""
    from ._pareto_page import pareto_page

    contents = {
        "candidates.csv": deployments_csv(best_rows(report)),
        "pareto.csv": deployments_csv(pareto_rows(report)),
        "pareto.html": pareto_page(report),
        "result.json": sweep_json(report),
    }
    for name, content in contents.items():
        write_file(folder / name, content)
    return [folder / name for name in contents]


def write_plot(report: SweepReport, path: Path) -> None:
    """Write the Pareto plot; the ending of the name chooses the form."""
    ending = path.suffix.lower()
    if ending == ".html":
        from ._pareto_page import pareto_page

        write_file(path, pareto_page(report))
    elif ending == ".png":
        from ._pareto_picture import pareto_picture

        write_file(path, pareto_picture(report))
    else:
        check_plot_name(path)


def check_plot_name(path: Path) -> None:
    """Refuse a name that says neither HTML nor PNG."""
    if path.suffix.lower() not in (".html", ".png"):
        raise InvalidInputError(
            f"--plot {str(path)!r}: the name must end in .html or .png."
        )
