"""Rows of a trace as growing columns, and the sessions that they form."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from math import nan
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Int

from .._errors import InvalidInputError
from ._lines import refuse


@dataclass
class RowBuffer:
    """Rows while a file is read, 8 bytes a figure.

    time_ms: NaN where the row gives none. delay_ms: likewise; wait after the turn before.
    busy_ms: how long the recorded answer took, NaN unknown.
    """

    path: Path
    line: array[int] = field(default_factory=lambda: array("q"))
    time_ms: array[float] = field(default_factory=lambda: array("d"))
    isl_tokens: array[int] = field(default_factory=lambda: array("q"))
    osl_tokens: array[int] = field(default_factory=lambda: array("q"))
    delay_ms: array[float] = field(default_factory=lambda: array("d"))
    busy_ms: array[float] = field(default_factory=lambda: array("d"))
    session: array[int] = field(default_factory=lambda: array("q"))
    names: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _known: dict[str, int] = field(default_factory=dict)

    def knows(self, session: str) -> bool:
        """Whether an earlier row belongs to the session."""
        return session in self._known

    def append(
        self,
        line: int,
        isl_tokens: int,
        osl_tokens: int,
        time_ms: float = nan,
        session: str | None = None,
        delay_ms: float = nan,
        busy_ms: float = nan,
    ) -> int:
        """Add a row and return the number of its session; without one it is its own."""
        self.line.append(line)
        self.isl_tokens.append(isl_tokens)
        self.osl_tokens.append(osl_tokens)
        self.time_ms.append(time_ms)
        self.delay_ms.append(delay_ms)
        self.busy_ms.append(busy_ms)
        number = None if session is None else self._known.get(session)
        if number is None:
            number = len(self.names)
            self.names.append(f"request_{line}" if session is None else session)
            if session is not None:
                self._known[session] = number
        self.session.append(number)
        return number


@dataclass(frozen=True)
class SessionTimes:
    """When rows are ready: turn 0 at arrival_ms (NaN later), others delay_ms after."""

    turn: Int[np.ndarray, " reqs"]
    arrival_ms: Float[np.ndarray, " reqs"]
    delay_ms: Float[np.ndarray, " reqs"]


def column(values: array[int] | array[float]) -> np.ndarray:
    """A column without a copy."""
    kind = np.float64 if values.typecode == "d" else np.int64
    return np.frombuffer(values, kind) if values else np.zeros(0, kind)


def session_times(
    rows: RowBuffer, *, speedup: float, closed: bool, missing_as_zero: bool
) -> SessionTimes:
    """Arrivals from 0 on and delays between turns, both divided by speedup.

    closed: recorded instants start nothing, so any may be missing. missing_as_zero: a
    missing instant means 0, as the reference has it, instead of an error.
    """
    session, time_ms = column(rows.session), column(rows.time_ms)
    turn = _turns(session)
    first = turn == 0
    arrival = np.zeros(session.size)
    if not closed:
        arrival = _arrivals(rows, time_ms, first, missing_as_zero) / speedup
    delay = np.zeros(session.size)
    if not first.all():
        delay = _delays(rows, session, turn) / speedup
        arrival[~first] = np.nan
    elif not np.isnan(column(rows.delay_ms)).all():
        _refuse_first_delay(rows, first)
    return SessionTimes(turn, arrival, delay)


def _turns(session: Int[np.ndarray, " reqs"]) -> Int[np.ndarray, " reqs"]:
    """How many earlier rows belong to the same session."""
    order = np.argsort(session, kind="stable")
    begin = np.searchsorted(session[order], session[order])
    turn = np.empty_like(session)
    turn[order] = np.arange(session.size) - begin
    return turn


def _arrivals(
    rows: RowBuffer,
    time_ms: Float[np.ndarray, " reqs"],
    first: Bool[np.ndarray, " reqs"],
    missing_as_zero: bool,
) -> Float[np.ndarray, " reqs"]:
    missing = np.isnan(time_ms)
    lacking = missing & first
    if lacking.any() and not missing.all() and not missing_as_zero:
        line = int(column(rows.line)[lacking][0])
        refuse(
            rows.path,
            line,
            "the timestamp is missing while other rows have one; add it, or remove all "
            "of them to let everything arrive at once",
        )
    given = np.where(lacking, 0.0, time_ms)
    return given - given[first].min()


def _delays(
    rows: RowBuffer, session: Int[np.ndarray, " reqs"], turn: Int[np.ndarray, " reqs"]
) -> Float[np.ndarray, " reqs"]:
    """Wait of every later turn after the one before.

    As given; else the difference to the last instant known in the session, less the time
    that the recorded answer took; else 0.
    """
    _refuse_first_delay(rows, turn == 0)
    order = np.argsort(session, kind="stable")
    time_ms, given = column(rows.time_ms)[order], column(rows.delay_ms)[order]
    busy = np.nan_to_num(column(rows.busy_ms)[order])
    later = turn[order] > 0
    at = np.arange(order.size)
    # Last row up to here with an instant, then the same as seen from the next row.
    last = np.maximum.accumulate(np.where(np.isnan(time_ms), -1, at))
    before = np.concatenate([[-1], last[:-1]])
    known = before >= at - turn[order]
    inferred = time_ms - time_ms[before] - busy[before]
    inferred = np.where(busy[before] > 0, np.maximum(inferred, 0.0), inferred)
    derived = later & np.isnan(given) & ~np.isnan(time_ms)
    _refuse_where(
        rows,
        order,
        derived & ~known,
        "no earlier row of the session has a timestamp, so that the delay is unknown; "
        "add the timestamp of the first turn, or a delay here",
    )
    delay = np.where(derived, inferred, np.nan_to_num(given)) * later
    _refuse_where(
        rows,
        order,
        ~(delay >= 0),
        "the delay after the turn before is negative; put the rows of a session in time "
        "order",
    )
    result = np.empty_like(delay)
    result[order] = delay
    return result


def _refuse_first_delay(rows: RowBuffer, first: Bool[np.ndarray, " reqs"]) -> None:
    delayed = first & ~np.isnan(column(rows.delay_ms))
    _refuse_where(
        rows,
        np.arange(first.size),
        delayed,
        "delay is set on the first turn of a session, which has no turn before it; "
        "remove it and use timestamp",
    )


def _refuse_where(
    rows: RowBuffer,
    order: Int[np.ndarray, " reqs"],
    wrong: Bool[np.ndarray, " reqs"],
    problem: str,
) -> None:
    if wrong.any():
        refuse(rows.path, int(column(rows.line)[order[wrong].min()]), problem)


def refuse_empty(rows: RowBuffer) -> None:
    """Reject a trace without a request."""
    if not rows.line:
        raise InvalidInputError(f"{rows.path}: the trace has no request; add rows")
