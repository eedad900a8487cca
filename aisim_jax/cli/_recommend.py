"""`aisim recommend`: which deployment serves one workload best?"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aisim_jax._errors import AisimError, InvalidInputError
from aisim_jax._output_folder import check_output_folder

from . import _options as options
from ._compile_cache import enable_compile_cache
from ._exit_codes import EXIT_INFEASIBLE, EXIT_INTERRUPTED
from ._predict import OUTPUT_FOLDER, STACKS
from ._progress import counted_progress, progress
from ._render import console_width, print_renderable, print_text


if TYPE_CHECKING:
    from aisim_jax.config import RecommendationConfig
    from aisim_jax.recommend.search import Recommendation


def recommend(
    config: Annotated[
        Path,
        typer.Option("--config", "-c", help="recommendation.yaml.", show_default=False),
    ],
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PATH=YAML",
            help="Override a field, e.g. optimization.target=pareto; repeatable, left "
            "to right.",
            show_default=False,
        ),
    ] = None,
    stack: Annotated[str, typer.Option(help="Execution stack.")] = STACKS[0],
    output_dir: Annotated[
        Path, typer.Option(help="Folder of the result files.")
    ] = OUTPUT_FOLDER,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace result files in the folder.")
    ] = False,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Go on with an interrupted search in the folder."
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Count the candidates; replay and write nothing."
        ),
    ] = False,
    format: options.PlainPrintFormat = options.PlainFormat.table,
) -> int:
    """Replay every deployment that could win; rank them and write each as a file."""
    try:
        if stack not in STACKS:
            raise InvalidInputError(
                f"--stack {stack!r} is not installed; there is {', '.join(STACKS)}"
            )
        from aisim_jax.config import load_recommendation

        loaded = load_recommendation(config, set_ or ())
        if not dry_run:
            check_output_folder(output_dir, overwrite=overwrite or resume)
        enable_compile_cache()
        if dry_run:
            return _count(loaded, config.parent, format)
        return _search(loaded, config.parent, output_dir, resume=resume, format=format)
    except AisimError as error:
        if format is options.PlainFormat.json:
            sentence = " ".join(str(error).split())
            print_text(json.dumps({"error": sentence, "exit_code": 2}))
        raise


def _count(
    config: RecommendationConfig, beside: Path, format: options.PlainFormat
) -> int:
    with progress("enumerating candidates"):
        from aisim_jax.recommend.search import plan_record, plan_search

        record = plan_record(plan_search(config, beside))
    if format is options.PlainFormat.json:
        print_text(json.dumps(record))
    else:
        print_text(
            f"{record['candidates']:,} candidates, {record['dropped']:,} of them dropped "
            f"before any replay; {record['replays']:,} replays stand for the others, "
            f"about {record['estimated_seconds']:.0f} s."
        )
    return 0


def _search(
    config: RecommendationConfig,
    beside: Path,
    folder: Path,
    *,
    resume: bool,
    format: options.PlainFormat,
) -> int:
    with counted_progress("replaying candidates") as tell:
        from aisim_jax.recommend.search import recommend as search
        from aisim_jax.recommend.search import write_recommendation

        answer = search(
            config, folder=folder, resume=resume, progress=tell, beside=beside
        )
    written = write_recommendation(answer, config, folder)
    _show(answer, folder, format)
    print(f"Wrote {written[-1]}", file=sys.stderr)
    if answer.interrupted:
        print(
            "aisim: interrupted; the files hold what was finished, --resume goes on.",
            file=sys.stderr,
        )
        return EXIT_INTERRUPTED
    if not answer.chosen:
        print(
            f"aisim: no feasible candidate found; saved full result to: {written[-1]}",
            file=sys.stderr,
        )
        return EXIT_INFEASIBLE
    return 0


def _show(answer: Recommendation, folder: Path, format: options.PlainFormat) -> None:
    from aisim_jax.recommend.search import ranking_records, yaml_names

    names = yaml_names(answer.chosen)
    if format is options.PlainFormat.json:
        print_text(json.dumps(ranking_records(answer, folder)))
        return
    from aisim_jax.report import recommendation_text

    print_renderable(recommendation_text(answer, names, console_width()))
