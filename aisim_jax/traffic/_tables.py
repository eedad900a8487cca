"""Traces as tables: CSV with a header, or JSON lines with lengths but no contents."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

from .._errors import InvalidInputError
from ._layouts import LAYOUTS, Layout, TimeUnit
from ._lines import opened, refuse, token_count
from ._mooncake import json_objects, milliseconds
from ._trace_rows import RowBuffer


Cell = Callable[[str | None], object]
_CALENDAR = re.compile(
    r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?"
)


class _Columns(NamedTuple):
    """Names found in one file; None where it lacks a column."""

    time: str | None
    unit: TimeUnit
    isl: str
    osl: str
    session: str | None
    delay_ms: str | None
    total: str | None
    busy_s: str | None


def read_table(
    path: Path, layout_name: str, *, needs_times: bool, keep_failed: bool = False
) -> RowBuffer:
    """Rows of a table; contents are not recorded, so prompts share nothing.

    needs_times: refuse a file without a time column. keep_failed: keep rows that the
    layout marks as failed calls.
    """
    layout = LAYOUTS[layout_name]
    rows = RowBuffer(path)
    columns, failed, clock = None, 0, _Clock(path)
    records = _json_rows(path) if layout_name == "jsonl" else csv_rows(path)
    for line, cell in records:
        if columns is None:
            columns = _columns(path, layout, cell, needs_times=needs_times)
        isl = _tokens(path, line, columns.isl, cell, least=1)
        osl = _tokens(path, line, columns.osl, cell, least=0)
        _check_total(path, line, columns.total, cell, isl + osl)
        if osl == 0 and layout.failed_without_output and not keep_failed:
            failed += 1
            continue
        busy_ms = 1000.0 * _number(path, line, columns.busy_s, cell)
        rows.append(
            line,
            isl,
            osl,
            clock.ms(line, columns.time, columns.unit, cell),
            _text(cell(columns.session)),
            _number(path, line, columns.delay_ms, cell),
            busy_ms,
        )
    if failed:
        rows.notes.append(f"{path}: {failed} failed calls without output are left out")
    return rows


def csv_rows(path: Path) -> Iterator[tuple[int, Cell]]:
    """Line numbers and a look-up by column name; quoted cells and CR LF are understood."""
    with opened(path) as stream:
        reader = csv.reader(stream)
        header = [name.strip() for name in next(reader, [])]
        place = {name: at for at, name in enumerate(header)}
        for row in reader:
            if not row:
                continue
            if len(row) != len(header):
                refuse(
                    path,
                    reader.line_num,
                    f"{len(row)} cells under {len(header)} columns; correct the row",
                )
            yield reader.line_num, partial(_csv_cell, row, place)


def _csv_cell(row: Sequence[str], place: dict[str, int], name: str | None) -> object:
    at = None if name is None else place.get(name)
    return None if at is None else row[at].strip()


def _json_cell(row: dict[str, object], name: str | None) -> object:
    return None if name is None else row.get(name)


def _json_rows(path: Path) -> Iterator[tuple[int, Cell]]:
    for line, row in json_objects(path):
        yield line, partial(_json_cell, row)


def _columns(path: Path, layout: Layout, cell: Cell, *, needs_times: bool) -> _Columns:
    """Names of this file, judged by its first row."""

    def found(names: Sequence[str]) -> str | None:
        return next((name for name in names if cell(name) is not None), None)

    isl, osl = found(layout.isl), found(layout.osl)
    for name, known in ((isl, layout.isl), (osl, layout.osl)):
        if name is None:
            raise InvalidInputError(
                f"{path}: no column {' or '.join(known)}; rename the column or choose "
                "another trace format"
            )
    assert isl is not None and osl is not None
    units = dict(layout.time)
    time = found(list(units))
    if time is None and needs_times:
        raise InvalidInputError(
            f"{path}: no column {' or '.join(units)}, so the trace cannot be replayed by "
            "timestamps; use a concurrency load or synthetic arrivals"
        )
    return _Columns(
        time,
        units[time] if time else "ms",
        isl,
        osl,
        found(layout.session),
        found(layout.delay_ms),
        found(layout.total),
        found(layout.busy_s),
    )


def _tokens(path: Path, line: int, name: str, cell: Cell, *, least: int) -> int:
    value = cell(name)
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    return token_count(path, line, name, value, least)


def _check_total(
    path: Path, line: int, name: str | None, cell: Cell, expected: int
) -> None:
    if name is not None and cell(name) not in (str(expected), expected):
        refuse(
            path,
            line,
            f"{name} = {cell(name)} is not the sum of both lengths, {expected}; the "
            "columns of this file do not mean what their names say",
        )


def _text(value: object) -> str | None:
    """A session name; empty means none."""
    return None if value is None or value == "" else str(value)


def _number(path: Path, line: int, name: str | None, cell: Cell) -> float:
    """A cell as a number, NaN where there is none."""
    value = cell(name) if name else None
    if isinstance(value, str):
        if not value:
            return math.nan
        try:
            value = float(value)
        except ValueError:
            refuse(path, line, f"{name} is {value!r}, which is no number; correct it")
    return milliseconds(path, line, name or "", value)


class _Clock:
    """Instants of one file in ms; calendar times are counted from its first one.

    Calendar times stay whole nanoseconds until the difference is taken: a float64 of
    seconds since 1970 keeps less than a microsecond.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._first_ns: int | None = None

    def ms(self, line: int, name: str | None, unit: TimeUnit, cell: Cell) -> float:
        if unit != "calendar":
            scale = 1000.0 if unit == "s" else 1.0
            return scale * _number(self._path, line, name, cell)
        text = cell(name)
        if text is None or text == "":
            return math.nan
        now_ns = _nanoseconds(str(text))
        if now_ns is None:
            refuse(
                self._path,
                line,
                f"{name} is {text!r}; write YYYY-MM-DD hh:mm:ss.fffffff",
            )
        if self._first_ns is None:
            self._first_ns = now_ns
        return (now_ns - self._first_ns) / 10**6


def _nanoseconds(text: str) -> int | None:
    """Whole nanoseconds since 1970; a time without a zone counts as UTC."""
    match = _CALENDAR.fullmatch(text)
    if match is None:
        return None
    day, clock, fraction, zone = match.groups()
    seconds = _seconds(f"{day}T{clock}", zone or "+00:00")
    return (
        None
        if seconds is None
        else seconds * 10**9 + int((fraction or "").ljust(9, "0"))
    )


@lru_cache(maxsize=64)
def _seconds(text: str, zone: str) -> int | None:
    try:
        return int(datetime.fromisoformat(text + zone).timestamp())
    except ValueError:
        return None
