"""Text of a trace, line by line, plain or compressed; and what is wrong with a line."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NoReturn

from .._errors import InvalidInputError


MOST_TOKENS = 2**31 - 1


@contextmanager
def opened(path: Path) -> Iterator[IO[str]]:
    """The text of a file, line ends as they are; `.gz` is decompressed on the way."""
    if not path.is_file():
        raise InvalidInputError(f"{path}: no such trace file; check the path")
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8-sig", newline="") as stream:
        yield stream


def refuse(path: Path, line: int, problem: str) -> NoReturn:
    """Reject one line of a file."""
    raise InvalidInputError(f"{path}, line {line}: {problem}")


def token_count(path: Path, line: int, name: str, value: object, least: int) -> int:
    """A whole number of tokens from least to 2^31 - 1, given as such."""
    # A boolean is an integer to Python, but no length.
    if type(value) is not int:
        refuse(
            path,
            line,
            f"{name} is {value!r}, which is no whole number; write an integer",
        )
    if not least <= value <= MOST_TOKENS:
        remedy = (
            "prompts need a token" if least and value < least else "correct the row"
        )
        refuse(
            path,
            line,
            f"{name} = {value} is outside {least} .. {MOST_TOKENS}; {remedy}",
        )
    return value
