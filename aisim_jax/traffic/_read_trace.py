"""A trace file of any known format as a workload."""

from __future__ import annotations

import json
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Literal

from .._errors import InvalidInputError
from ._contents import Contents, Unique
from ._layouts import LAYOUTS
from ._lines import opened
from ._mooncake import read_mooncake
from ._servegen import read_servegen
from ._tables import read_table
from ._trace_rows import RowBuffer, column, refuse_empty, session_times
from ._workload import Tokenizer, Workload


TraceFormat = Literal[
    "auto",
    "mooncake",
    "mooncake-delta",
    "csv",
    "jsonl",
    "azure",
    "burstgpt",
    "vidur",
    "servegen",
]
AnyPath = str | PathLike[str]


def read_trace(
    paths: AnyPath | Sequence[AnyPath],
    format: TraceFormat = "auto",
    *,
    max_in_flight: int | None = None,
    speedup: float = 1.0,
    block_tokens: int = 512,
    seed: int = 42,
    missing_as_zero: bool = False,
    keep_failed: bool = False,
    max_virtual_time_ms: float | None = None,
    tokenizer: Tokenizer | None = None,
) -> Workload:
    """Requests of a trace in file order; the file is read once, row by row.

    paths: one file, `.gz` or plain; servegen takes its rates file and its lengths file.
    format: "auto" looks at the first line; it never means mooncake-delta.
    max_in_flight: run a closed loop and ignore the recorded instants; None replays them.
    speedup: instants and delays are divided by it, > 0.
    block_tokens: tokens of one hash id (mooncake formats).
    seed: of the requests drawn from servegen statistics.
    missing_as_zero: a row without a timestamp arrives at 0, as in the reference; by
    default that is an error unless every row lacks it.
    keep_failed: keep the failed calls of burstgpt files as requests without output.
    """
    files = [Path(p) for p in ([paths] if isinstance(paths, str | PathLike) else paths)]
    if not speedup > 0:
        raise InvalidInputError(f"speedup={speedup} must be above 0; 1 = as recorded")
    kind = detect_format(files) if format == "auto" else format
    _check_files(files, kind)
    closed = max_in_flight is not None
    rows, contents = _read(files, kind, closed, block_tokens, seed, keep_failed)
    refuse_empty(rows)
    times = session_times(
        rows,
        speedup=1.0 if closed else speedup,
        closed=closed,
        missing_as_zero=missing_as_zero,
    )
    return Workload(
        arrival_ms=times.arrival_ms,
        isl_tokens=column(rows.isl_tokens),
        osl_tokens=column(rows.osl_tokens),
        session=column(rows.session),
        turn=times.turn,
        delay_ms=times.delay_ms,
        max_in_flight=max_in_flight,
        contents=contents,
        max_virtual_time_ms=max_virtual_time_ms,
        tokenizer=tokenizer,
        session_names=tuple(rows.names),
        notes=tuple(rows.notes),
    )


def detect_format(files: Sequence[Path]) -> TraceFormat:
    """The format that the first line of a trace shows."""
    if len(files) == 2:
        return "servegen"
    with opened(files[0]) as stream:
        head = next((text for text in stream if not text.isspace()), "").strip()
    if head.startswith("{"):
        try:
            keys = json.loads(head).keys()
        except json.JSONDecodeError:
            keys = ()
        return "mooncake" if "hash_ids" in keys else "jsonl"
    names = {name.strip().strip('"') for name in head.split(",")}
    for kind in ("azure", "burstgpt", "vidur", "csv"):
        layout = LAYOUTS[kind]
        if names.intersection(layout.isl) and names.intersection(layout.osl):
            return kind
    raise InvalidInputError(
        f"{files[0]}: the format is not evident from {head[:80]!r}; name it"
    )


def _check_files(files: Sequence[Path], kind: TraceFormat) -> None:
    wanted = 2 if kind == "servegen" else 1
    if len(files) != wanted:
        need = "a rates file and a lengths file" if wanted == 2 else "one file"
        raise InvalidInputError(f"format {kind} takes {need}, got {len(files)} paths")


def _read(
    files: Sequence[Path],
    kind: TraceFormat,
    closed: bool,
    block_tokens: int,
    seed: int,
    keep_failed: bool,
) -> tuple[RowBuffer, Contents]:
    if kind in ("mooncake", "mooncake-delta"):
        return read_mooncake(files[0], block_tokens, delta=kind == "mooncake-delta")
    if kind == "servegen":
        rates, lengths = files
        return read_servegen(rates, lengths, seed), Unique()
    if kind not in LAYOUTS:
        known = ", ".join(["mooncake", "mooncake-delta", "servegen", *LAYOUTS])
        raise InvalidInputError(f"trace format {kind!r} is unknown; use one of {known}")
    rows = read_table(files[0], kind, needs_times=not closed, keep_failed=keep_failed)
    return rows, Unique()
