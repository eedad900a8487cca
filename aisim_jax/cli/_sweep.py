"""`aisim sweep`: which deployment should I run?"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from . import _options as options


class Mode(StrEnum):
    """Rules of the search."""

    complete = "complete"
    compat = "compat"


class Serving(StrEnum):
    """Serving modes that are searched."""

    agg = "agg"
    disagg = "disagg"
    both = "both"


ALL = "auto"


def sweep(
    model: options.Model,
    gpus: Annotated[
        int,
        typer.Option(
            min=1, help="GPUs to spend; with a load target, the most per worker."
        ),
    ] = 8,
    system: Annotated[
        list[str] | None,
        typer.Option(help="GPU system; repeatable; auto = all.", show_default=False),
    ] = None,
    backend: Annotated[
        list[str] | None,
        typer.Option(help="Engine; repeatable; auto = all.", show_default=False),
    ] = None,
    backend_version: options.Version = None,
    isl: Annotated[int, typer.Option(min=1, help="Prompt length, tokens.")] = 4000,
    osl: Annotated[int, typer.Option(min=1, help="Output length, tokens.")] = 1000,
    prefix: Annotated[
        int, typer.Option(min=0, help="Cached part of the prompt, tokens.")
    ] = 0,
    ttft: Annotated[float, typer.Option(help="Time to first token, ms.")] = 2000,
    tpot: Annotated[float, typer.Option(help="Time per output token, ms.")] = 30,
    request_latency: Annotated[
        float | None,
        typer.Option(
            help="End-to-end target, ms; replaces --tpot.", show_default=False
        ),
    ] = None,
    target_request_rate: Annotated[
        float | None,
        typer.Option(
            help="Size for this many requests/s on the fewest GPUs.", show_default=False
        ),
    ] = None,
    target_concurrency: Annotated[
        float | None,
        typer.Option(
            help="Size for this many requests in flight on the fewest GPUs.",
            show_default=False,
        ),
    ] = None,
    strict_sla: Annotated[
        bool, typer.Option("--strict-sla", help="Drop points that miss a target.")
    ] = False,
    top_n: Annotated[int, typer.Option(min=1, help="Deployments per mode.")] = 5,
    mode: Annotated[
        Mode,
        typer.Option(help="complete = everything; compat = the reference's cuts."),
    ] = Mode.complete,
    serving_mode: Annotated[
        Serving, typer.Option(help="Aggregated, disaggregated, or both.")
    ] = Serving.both,
    systems_path: options.SystemsPaths = None,
    format: options.PrintFormat = options.Format.table,
    output_dir: options.OutputDir = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="Write the frontier to a .html or .png.", show_default=False),
    ] = None,
) -> None:
    """Evaluate every deployment of a model; show the best and the Pareto frontier."""
    from aisim_jax.report import check_plot_name

    if plot is not None:
        check_plot_name(plot)
    raise NotImplementedError
