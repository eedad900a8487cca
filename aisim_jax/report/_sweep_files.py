"""A sweep as files: JSON, CSV, an interactive page, a picture."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aisim_jax._atomic import write_file
from aisim_jax.recommend import SweepResult

from ._deployment import SweepReport
from ._launch import launch_commands
from ._pareto_page import pareto_page
from ._plot_name import check_plot_name


SCHEMA_VERSION = 1


def sweep_json(result: SweepResult, report: SweepReport) -> str:
    """result.json: question, answer with launch commands, experiments, data.

    A number that has no value is null.
    """
    commands = (
        []
        if report.chosen is None
        else launch_commands(report.chosen, report.model, report.question)
    )
    record = {
        "schema_version": SCHEMA_VERSION,
        "question": dict(report.question),
        **result.as_dict(),
        "launch": [command._asdict() for command in commands],
        "data": list(report.origins),
    }
    return json.dumps(_finite(record), indent=2, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float) and value - value != 0:
        return None
    return value


def write_sweep(result: SweepResult, report: SweepReport, folder: Path) -> list[Path]:
    """Write result.json, best.csv, pareto.csv and pareto.html to `folder`."""
    contents = {
        "best.csv": result.to_csv("best"),
        "pareto.csv": result.to_csv("pareto"),
        "pareto.html": pareto_page(report),
        "result.json": sweep_json(result, report),
    }
    for name, content in contents.items():
        write_file(folder / name, content)
    return [folder / name for name in contents]


def write_plot(report: SweepReport, path: Path) -> None:
    """Write the Pareto plot; the ending of the name chooses the form."""
    check_plot_name(path)
    if path.suffix.lower() == ".html":
        write_file(path, pareto_page(report))
    else:
        from ._pareto_picture import pareto_picture

        write_file(path, pareto_picture(report))
