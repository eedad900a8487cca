"""Padded sizes: few distinct ones, so that arrays of many sizes share programs."""

from __future__ import annotations


def power_of_two(count: int) -> int:
    """Least power of two that is at least `count`; 1 for none."""
    return 1 << max(count - 1, 0).bit_length()


def whole_steps(count: int, step: int) -> int:
    """Least positive multiple of `step` that is at least `count`."""
    return max(-(-count // step), 1) * step


def row_bucket(rows: int) -> int:
    """4096, 16384, ...: so that growing a table seldom recompiles."""
    size = 4096
    while size < rows:
        size *= 4
    return size
