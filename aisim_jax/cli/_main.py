"""The `aisim` command: parse, call one library function, render."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import cast

import typer

from aisim_jax._errors import AisimError

from ._capacity import capacity
from ._estimate import estimate
from ._exit_codes import EXIT_INTERRUPTED, EXIT_INVALID, exit_code
from ._predict import predict
from ._profiles import profiles_app
from ._recommend import recommend
from ._sweep import sweep


# The base of every mistake in a command line; its module depends on typer's version.
CommandLineError: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Price, size and choose LLM serving deployments on measured data.",
)
app.command()(predict)
app.command()(recommend)
app.command()(sweep)
app.command()(estimate)
app.command()(capacity)
app.add_typer(profiles_app, name="profiles")


@app.command()
def version() -> None:
    """Print the version of aisim-jax."""
    from aisim_jax import __version__

    print(__version__)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit: 0 answered, 1 no answer exists, 2 bad input.

    Whatever goes wrong for a reason that a person can act on is one sentence on
    stderr.
    """
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    words = {(): ["--help"], ("--version",): ["version"]}.get(tuple(words), words)
    try:
        code = app(args=words, prog_name="aisim", standalone_mode=False)
    except CommandLineError as error:
        sentence = cast(typer.BadParameter, error).format_message()
        return _fail(sentence, EXIT_INVALID)
    except AisimError as error:
        return _fail(str(error), exit_code(error))
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted.", EXIT_INTERRUPTED)
    return code if isinstance(code, int) else 0


def _fail(sentence: str, code: int) -> int:
    print(f"aisim: {' '.join(sentence.split())}", file=sys.stderr)
    return code
