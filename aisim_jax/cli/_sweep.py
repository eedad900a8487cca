"""`aisim sweep`: which deployment should I run?"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aisim_jax._atomic import check_writable
from aisim_jax._backends import BACKENDS
from aisim_jax._defaults import ISL_TOKENS, OSL_TOKENS, TOP_N, TPOT_MS, TTFT_MS
from aisim_jax._errors import InvalidInputError

from . import _options as options
from ._compile_cache import enable_compile_cache
from ._progress import progress
from ._render import console_width, print_renderable, print_text


if TYPE_CHECKING:
    from aisim_jax.recommend import SweepResult


class Mode(StrEnum):
    """Rules of the search."""

    complete = "complete"
    compat = "compat"


class Serving(StrEnum):
    """Serving modes that are searched."""

    agg = "agg"
    disagg = "disagg"
    both = "both"


SERVING_MODES = {
    Serving.agg: ("agg",),
    Serving.disagg: ("disagg",),
    Serving.both: ("agg", "disagg"),
}


def sweep(
    model: options.Model,
    system: Annotated[
        list[str] | None,
        typer.Option(help="GPU system; repeatable; auto = all.", show_default=False),
    ] = None,
    backend: Annotated[
        list[options.BackendOrAuto] | None,
        typer.Option(help="Engine; repeatable; auto = all.", show_default=False),
    ] = None,
    backend_version: options.Version = None,
    kv_quant: options.Kv = None,
    gpus: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="GPUs to spend, default one node; with a load, the most per worker.",
            show_default=False,
        ),
    ] = None,
    isl: Annotated[
        int, typer.Option(min=1, help="Prompt length, tokens.")
    ] = ISL_TOKENS,
    osl: Annotated[
        int, typer.Option(min=1, help="Output length, tokens.")
    ] = OSL_TOKENS,
    prefix: Annotated[
        int, typer.Option(min=0, help="Cached part of the prompt, tokens.")
    ] = 0,
    ttft: Annotated[
        float | None,
        typer.Option(
            min=0,
            help=f"Time to first token, ms; default {TTFT_MS:g}.",
            show_default=False,
        ),
    ] = None,
    tpot: Annotated[
        float | None,
        typer.Option(
            min=0,
            help=f"Time per output token, ms; default {TPOT_MS:g}.",
            show_default=False,
        ),
    ] = None,
    request_latency: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="End-to-end limit, ms; replaces --ttft and --tpot.",
            show_default=False,
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
    max_gpus: Annotated[
        int | None,
        typer.Option(min=1, help="Most GPUs for the load.", show_default=False),
    ] = None,
    strict_sla: Annotated[
        bool, typer.Option("--strict-sla", help="Drop points that miss a target.")
    ] = False,
    top_n: Annotated[int, typer.Option(min=1, help="Deployments per mode.")] = TOP_N,
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
        check_writable(plot)
    if output_dir is not None:
        check_writable(output_dir / "result.json")
    if request_latency is not None and (ttft is not None or tpot is not None):
        raise InvalidInputError(
            "--request-latency replaces --ttft and --tpot; give one or the others"
        )
    if target_request_rate is not None and target_concurrency is not None:
        raise InvalidInputError(
            "give one of --target-request-rate and --target-concurrency, not both"
        )
    from aisim_jax.models import load_model
    from aisim_jax.systems import list_profiles, load_system

    roots = tuple(systems_path or ())
    question = {
        "gpus": gpus,
        "isl": isl,
        "osl": osl,
        "ttft_ms": TTFT_MS if ttft is None else ttft,
        "tpot_ms": TPOT_MS if tpot is None else tpot,
        "request_latency_ms": request_latency,
        "prefix": prefix,
        "target_request_rate": target_request_rate,
        "target_concurrency": target_concurrency,
        "max_gpus": max_gpus,
        "strict_sla": strict_sla,
        "mode": mode.value,
        "serving_modes": SERVING_MODES[serving_mode],
        "version": backend_version,
        "top_n": top_n,
        "precision": {} if kv_quant is None else {"kv": kv_quant},
    }
    systems = _chosen(
        system, lambda: sorted({one.system for one in list_profiles(roots)})
    )
    backends = _chosen(backend, lambda: list(BACKENDS))
    # An unknown name is said before jax is imported.
    load_model(model)
    for name in systems:
        load_system(name, roots)
    enable_compile_cache()
    with progress(f"pricing every deployment of {model}"):
        from aisim_jax.recommend import sweep as evaluate

        result = evaluate(model, systems, backends, systems_paths=roots, **question)
    asked = {"model": model, "systems": systems, "backends": backends, **question}
    _show(result, {**asked, "systems_paths": roots}, format, output_dir, plot)


def _chosen(given: Sequence[str] | None, every: Callable[[], list[str]]) -> list[str]:
    return (
        [str(one) for one in given] if given and options.AUTO not in given else every()
    )


def _show(
    result: SweepResult,
    question: Mapping[str, Any],
    format: options.Format,
    output_dir: Path | None,
    plot: Path | None,
) -> None:
    from aisim_jax.report import (
        sweep_json,
        sweep_report,
        sweep_text,
        write_plot,
        write_sweep,
    )

    report = sweep_report(result, question)
    if format is options.Format.json:
        print_text(sweep_json(result, report))
    elif format is options.Format.csv:
        print_text(result.to_csv("best"))
    else:
        print_renderable(sweep_text(report, console_width()))
    written = []
    if output_dir is not None:
        written += write_sweep(result, report, output_dir)
    if plot is not None:
        write_plot(report, plot)
        written.append(plot)
    for path in written:
        print(f"Wrote {path}", file=sys.stderr)
