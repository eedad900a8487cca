"""A Pareto plot in plain characters: any width, no colour needed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class Series(NamedTuple):
    """Points (x, y) drawn with one character."""

    name: str
    marker: str
    points: Sequence[tuple[float, float]]


def terminal_plot(
    series: Sequence[Series],
    *,
    x_label: str,
    y_label: str,
    width: int = 78,
    height: int = 18,
) -> str:
    """Draw series on shared linear axes; later series are drawn on top.

    `width` and `height` are the outer size in characters, at least 30 x 8.
    """
    width, height = max(width, 30), max(height, 8)
    points = [point for one in series for point in one.points]
    if not points:
        return "(no points to draw)"
    y_ticks = _ticks(0.0, max(y for _, y in points), max(2, (height - 4) // 4))
    x_ticks = _ticks(
        min(x for x, _ in points),
        max(x for x, _ in points),
        max(2, (width - 10) // 14),
    )
    margin = max(len(_number(tick)) for tick in y_ticks) + 1
    columns, rows = width - margin - 1, height - 4
    canvas = [[" "] * columns for _ in range(rows)]

    def column(x: float) -> int:
        return _cell(x, x_ticks[0], x_ticks[-1], columns)

    def row(y: float) -> int:
        return rows - 1 - _cell(y, y_ticks[0], y_ticks[-1], rows)

    for one in series:
        for x, y in one.points:
            canvas[row(y)][column(x)] = one.marker
    labels = {row(tick): _number(tick) for tick in y_ticks}
    lines = [y_label]
    for place, cells in enumerate(canvas):
        label = labels.get(place, "")
        edge = "┤" if label else "│"
        lines.append(f"{label:>{margin}}{edge}{''.join(cells)}".rstrip())
    lines.append(" " * margin + "└" + "─" * columns)
    lines.append(_x_axis(x_ticks, column, margin + 1, width))
    legend = "   ".join(f"{one.marker} {one.name}" for one in series if one.points)
    lines.append(f"{legend}   → {x_label}"[: max(width, len(legend))])
    return "\n".join(lines)


def _cell(value: float, low: float, high: float, cells: int) -> int:
    share = (value - low) / (high - low)
    return min(max(round(share * (cells - 1)), 0), cells - 1)


def _ticks(low: float, high: float, count: int) -> list[float]:
    """Round numbers that enclose [low, high]."""
    span = (high - low) or abs(high) or 1.0
    raw = span / count
    scale = 10.0 ** math.floor(math.log10(raw))
    step = next(m * scale for m in (1, 2, 2.5, 5, 10) if m * scale >= raw * 0.999)
    first = math.floor(low / step + 1e-9)
    last = max(math.ceil(high / step - 1e-9), first + 1)
    return [step * place for place in range(first, last + 1)]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:g}"


def _x_axis(ticks: list[float], column, offset: int, width: int) -> str:
    cells = [" "] * (width + 8)
    free = 0
    for tick in ticks:
        text = _number(tick)
        start = max(offset + column(tick) - len(text) // 2, 0)
        start = min(start, width - len(text))
        if start < free:
            continue
        cells[start : start + len(text)] = text
        free = start + len(text) + 1
    return "".join(cells).rstrip()
