"""`aisim predict`: how does one deployment serve one workload?"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from aisim_jax._errors import AisimError, InvalidInputError, UnsupportedError
from aisim_jax._output_folder import check_output_folder
from aisim_jax._sections import SECTIONS

from . import _options as options
from ._compile_cache import enable_compile_cache
from ._exit_codes import exit_code
from ._progress import progress
from ._render import print_renderable, print_text


OUTPUT_FOLDER = Path("aisimulate-output")
STACKS = ("engine",)


def predict(
    config: Annotated[
        Path,
        typer.Option("--config", "-c", help="prediction.yaml.", show_default=False),
    ],
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PATH=YAML",
            help="Override a field, e.g. engine.workers.aggregated.parallelism.tensor=2;"
            " repeatable, left to right.",
            show_default=False,
        ),
    ] = None,
    stack: Annotated[str, typer.Option(help="Execution stack.")] = "engine",
    output_dir: Annotated[
        Path, typer.Option(help="Folder of the result files.")
    ] = OUTPUT_FOLDER,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace result files in the folder.")
    ] = False,
    capture_per_request: Annotated[
        bool, typer.Option("--capture-per-request", help="Write requests.jsonl.")
    ] = False,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Simulate this many seeds: means and 95 % intervals; sets "
            "evaluation.seeds.",
            show_default=False,
        ),
    ] = None,
    compat: Annotated[
        bool,
        typer.Option(
            "--compat",
            help="The reference's histogram percentiles and errors; sets engine.compat.",
        ),
    ] = False,
    detail: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help=f"Sections: {', '.join(SECTIONS)}, or all.",
            show_default=False,
        ),
    ] = None,
    detail_top_n: Annotated[
        int | None,
        typer.Option(min=1, help="Not built: operations per phase.", hidden=True),
    ] = None,
    diagnostics: Annotated[
        str | None, typer.Option(help="Not built: power.", hidden=True)
    ] = None,
    online: Annotated[
        bool, typer.Option("--online", help="Not built: wall clock.", hidden=True)
    ] = False,
    format: options.PlainPrintFormat = options.PlainFormat.table,
) -> None:
    """Simulate one deployment under one workload, request by request."""
    try:
        _refuse_what_is_not_built(stack, detail_top_n, diagnostics, online)
        sections = _sections(detail)
        overrides = list(set_ or ())
        if compat:
            overrides.append("engine.compat=true")
        if seeds is not None:
            overrides.append(f"evaluation.seeds={seeds}")
        _predict(
            config,
            overrides,
            output_dir,
            overwrite=overwrite,
            capture=capture_per_request,
            sections=sections,
            format=format,
        )
    except AisimError as error:
        if format is options.PlainFormat.json:
            sentence = " ".join(str(error).split())
            answer = {"error": sentence, "exit_code": exit_code(error)}
            print_text(json.dumps(answer))
        raise


def _predict(
    config: Path,
    overrides: list[str],
    output_dir: Path,
    *,
    overwrite: bool,
    capture: bool,
    sections: tuple[str, ...],
    format: options.PlainFormat,
) -> None:
    from aisim_jax.config import load_prediction

    loaded = load_prediction(config, overrides)
    check_output_folder(output_dir, overwrite=overwrite)
    enable_compile_cache()
    with progress(f"simulating {config.name}"):
        from aisim_jax.replay import predict as simulate

        prediction = simulate(
            loaded, capture=capture, sections=sections, beside=config.parent
        )
    from aisim_jax.report import prediction_json, write_prediction

    written = write_prediction(prediction, output_dir)
    if format is options.PlainFormat.json:
        print_text(prediction_json(prediction))
    else:
        from aisim_jax.report import prediction_text

        print_renderable(prediction_text(prediction))
    for path in written:
        print(f"Wrote {path}", file=sys.stderr)


def _sections(detail: str | None) -> tuple[str, ...]:
    """`time,memory` -> sections; `all` = every section that is built."""
    names = [one.strip() for one in detail.split(",")] if detail else []
    if names == ["all"]:
        return SECTIONS
    if "energy" in names:
        raise UnsupportedError(
            "--detail energy: no energy data are built; leave it out"
        )
    unknown = [name for name in names if name not in SECTIONS]
    if unknown:
        raise InvalidInputError(
            f"--detail {unknown[0]!r}: give some of {', '.join(SECTIONS)}, or all"
        )
    return tuple(names)


def _refuse_what_is_not_built(
    stack: str, detail_top_n: int | None, diagnostics: str | None, online: bool
) -> None:
    if stack not in STACKS:
        raise InvalidInputError(
            f"--stack {stack!r} is not installed; there is {', '.join(STACKS)}"
        )
    if online:
        raise UnsupportedError(
            "--online: pacing by the wall clock is not built; leave it out to simulate "
            "in virtual time"
        )
    if diagnostics is not None:
        raise UnsupportedError(
            f"--diagnostics {diagnostics}: no energy data are built; leave it out"
        )
    if detail_top_n is not None:
        raise UnsupportedError(
            "--detail-top-n: times are not split into operations in a replay; use "
            "`aisim estimate` for one pass, and leave it out here"
        )
