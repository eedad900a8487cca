"""ServeGen files: rates and lengths per time window, from which requests are drawn."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from .._errors import InvalidInputError
from ._lines import opened, refuse
from ._trace_rows import RowBuffer


_PAIR = re.compile(r"(\d+):\s*([-+.\deE]+)")


class _Window(NamedTuple):
    """Requests per second from start_s on, and the law of their gaps."""

    start_s: float
    per_second: float
    law: str
    shape: float


class _Lengths(NamedTuple):
    """Token counts and their probabilities."""

    tokens: Int[np.ndarray, " values"]
    share: Float[np.ndarray, " values"]


def read_servegen(rates: Path, lengths: Path, seed: int) -> RowBuffer:
    """Requests drawn from the statistics of windows; prompts share nothing.

    A window of w seconds has round(rate * w) requests. Their gaps follow the named law
    with its shape and are scaled to the rate: the scale column of these files does not
    reproduce it. Lengths come from the last length window at or before the rate window;
    windows without lengths are left out, and so is the share of reasoning tokens.
    """
    draw = np.random.default_rng(seed)
    windows, step_s = _windows(rates)
    starts_s, prompts, answers = _length_windows(lengths)
    rows, skipped = RowBuffer(rates), 0
    drawn: list[np.ndarray] = []
    for window in windows:
        count = round(window.per_second * step_s)
        if not count:
            continue
        at = int(np.searchsorted(starts_s, window.start_s, side="right")) - 1
        if at < 0 or not (prompts[at].tokens.size and answers[at].tokens.size):
            skipped += count
            continue
        gaps_s = _gaps(rates, window, count, draw)
        drawn.append(
            np.stack(
                [
                    window.start_s + np.cumsum(gaps_s),
                    draw.choice(prompts[at].tokens, count, p=prompts[at].share),
                    draw.choice(answers[at].tokens, count, p=answers[at].share),
                ]
            )
        )
    if drawn:
        requests = np.concatenate(drawn, axis=1)
        requests = requests[:, np.argsort(requests[0], kind="stable")]
        # Drawn requests have no line; they are numbered from 1.
        for number, (at_s, isl, osl) in enumerate(requests.T.tolist(), start=1):
            rows.append(number, int(isl), int(osl), at_s * 1000.0)
    rows.notes.append(f"{rates}: requests are drawn with seed {seed}, not recorded")
    if skipped:
        rows.notes.append(
            f"{rates}: {skipped} requests in windows without lengths are left out"
        )
    return rows


def _gaps(
    path: Path, window: _Window, count: int, draw: np.random.Generator
) -> Float[np.ndarray, " gaps"]:
    """Gaps with the window's shape and exactly its mean rate, s."""
    if window.law == "Gamma":
        gaps = draw.gamma(window.shape, 1.0, count)
    elif window.law == "Weibull":
        gaps = draw.weibull(window.shape, count)
    else:
        raise InvalidInputError(
            f"{path}: window {window.start_s:g} names the law {window.law!r}; known are "
            "Gamma and Weibull"
        )
    return gaps / (gaps.mean() * window.per_second)


def _windows(path: Path) -> tuple[list[_Window], float]:
    """Windows in file order, and their length in seconds."""
    windows = []
    with opened(path) as stream:
        reader = csv.reader(stream)
        for row in reader:
            if not row:
                continue
            if len(row) != 6:
                refuse(
                    path,
                    reader.line_num,
                    f"{len(row)} cells; write start, rate, variation, law, shape, scale",
                )
            try:
                start_s, rate, _, shape, _ = map(float, row[:3] + row[4:])
            except ValueError as error:
                refuse(path, reader.line_num, f"{error}; write numbers")
            windows.append(_Window(start_s, rate, row[3].strip(), shape))
    starts = np.unique([window.start_s for window in windows])
    if starts.size < 2:
        raise InvalidInputError(
            f"{path}: one window alone has no length; give at least two windows"
        )
    return windows, float(np.diff(starts).min())


def _length_windows(
    path: Path,
) -> tuple[Float[np.ndarray, " windows"], list[_Lengths], list[_Lengths]]:
    """Starts in seconds, prompt lengths and answer lengths."""
    with opened(path) as stream:
        try:
            document = json.load(stream)
        except json.JSONDecodeError as error:
            refuse(path, error.lineno, f"this is no JSON ({error.msg})")
    ordered = sorted(document.items(), key=lambda item: float(item[0]))
    starts = np.array([float(start) for start, _ in ordered])
    return (
        starts,
        [_lengths(path, start, window, "input_tokens") for start, window in ordered],
        [_lengths(path, start, window, "output_tokens") for start, window in ordered],
    )


def _lengths(path: Path, start: str, window: dict[str, str], name: str) -> _Lengths:
    """A mapping that the file writes as text with bare integer keys."""
    if name not in window:
        raise InvalidInputError(f"{path}: window {start} lacks {name}; add it")
    pairs = _PAIR.findall(window[name])
    tokens = np.array([int(count) for count, _ in pairs], np.int64)
    share = np.array([float(part) for _, part in pairs])
    return _Lengths(tokens, share / share.sum() if share.size else share)
