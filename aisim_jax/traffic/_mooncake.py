"""Mooncake traces: one JSON object a line, prompts as hash ids of whole blocks."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ._chains import dense_labels
from ._contents import Contents
from ._hash_contents import DeltaBlocks, HashBlocks
from ._lines import opened, refuse, token_count
from ._trace_rows import RowBuffer, column


def read_mooncake(
    path: Path, block_tokens: int, *, delta: bool = False
) -> tuple[RowBuffer, Contents]:
    """Rows `input_length`, `output_length`, `hash_ids` and, where given, `timestamp` ms,
    `session_id`, `delay` ms.

    delta: later rows of a session hold only what is new; their prompts are the previous
    prompt, its answer and the new tokens.
    """
    rows = RowBuffer(path)
    ids, ends = array("Q"), array("q", [0])
    context: list[int] = []  # tokens of a session so far, answer included
    answers = array("q")
    news = array("q")
    for line, row in json_objects(path):
        session = _session(path, line, row)
        later = delta and session is not None and rows.knows(session)
        new = token_count(
            path, line, "input_length", row.get("input_length"), 0 if later else 1
        )
        osl = token_count(path, line, "output_length", row.get("output_length"), 0)
        _take_ids(path, line, row.get("hash_ids"), -(-new // block_tokens), ids)
        ends.append(len(ids))
        number = rows.append(
            line,
            new,
            osl,
            milliseconds(path, line, "timestamp", row.get("timestamp")),
            session,
            milliseconds(path, line, "delay", row.get("delay")),
        )
        if delta:
            _extend(rows, number, context)
            news.append(new)
            answers.append(osl)
    label = dense_labels(np.frombuffer(ids, np.uint64) if ids else np.zeros(0, int))
    blocks = HashBlocks(label, column(ends), block_tokens)
    if not delta:
        return rows, blocks
    contents = DeltaBlocks(blocks, column(news), column(answers), column(rows.session))
    return rows, contents


def json_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line numbers and objects of a JSON-lines file; blank lines count as lines."""
    with opened(path) as stream:
        for line, text in enumerate(stream, start=1):
            if text.isspace():
                continue
            try:
                row = json.loads(text)
            except json.JSONDecodeError as error:
                refuse(
                    path,
                    line,
                    f"this is no JSON ({error.msg} at column {error.colno}); write one "
                    "object a line",
                )
            if not isinstance(row, dict):
                refuse(path, line, f"{row!r:.60} is no JSON object; write one a line")
            yield line, row


def milliseconds(path: Path, line: int, name: str, value: object) -> float:
    """An instant or a wait; NaN where the row has none."""
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        refuse(path, line, f"{name} is {value!r}, which is no number; write ms")
    if not math.isfinite(value):
        refuse(path, line, f"{name} is {value}, which is not finite; correct the row")
    return float(value)


def _session(path: Path, line: int, row: dict[str, Any]) -> str | None:
    name = row.get("session_id")
    if name is not None and not isinstance(name, str):
        refuse(path, line, f"session_id is {name!r}; write a text, or leave it out")
    return name


def _take_ids(
    path: Path, line: int, hash_ids: object, needed: int, ids: array[int]
) -> None:
    """Add the ids of one prompt to the column; more than needed are left out."""
    if not isinstance(hash_ids, list):
        refuse(path, line, f"hash_ids is {hash_ids!r}; write a list of integers")
    if len(hash_ids) < needed:
        refuse(
            path,
            line,
            f"input_length needs {needed} hash_ids, got {len(hash_ids)}; add ids or set "
            "the block size of the trace",
        )
    held = len(ids)
    try:
        ids.extend(hash_ids[:needed])
    except (TypeError, OverflowError):
        wrong = hash_ids[len(ids) - held]
        refuse(path, line, f"hash id {wrong!r} must be an integer in 0 .. 2^64 - 1")


def _extend(rows: RowBuffer, number: int, context: list[int]) -> None:
    """Turn the last row's new tokens into the whole prompt of its session."""
    if number == len(context):
        context.append(0)
    rows.isl_tokens[-1] += context[number]
    context[number] = rows.isl_tokens[-1] + rows.osl_tokens[-1]
