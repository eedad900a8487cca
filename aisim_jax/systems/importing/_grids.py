"""Rows to dense blocks: first row wins, union axes, NaN where nothing was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from .._blocks import Block
from ._rows import Rows


def group_codes(columns: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return (group of each row, first row of each group), groups in first-seen order."""
    code = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values, inverse = np.unique(column, return_inverse=True)
        code = code * len(values) + inverse
        _, code = np.unique(code, return_inverse=True)
    _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank[inverse], first[order]


def first_rows(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Indices of the first row of every distinct coordinate, in load order."""
    return np.sort(group_codes(columns)[1])


def split(
    rows: Rows, columns: Sequence[np.ndarray]
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (first row, all rows) of each distinct value of `columns`, first seen first."""
    if len(rows.latency_ms) == 0:
        return
    group, first = group_codes(columns)
    order = np.argsort(group, kind="stable")
    bounds = np.searchsorted(group[order], np.arange(len(first) + 1))
    for index, row in enumerate(first):
        yield int(row), order[bounds[index] : bounds[index + 1]]


def grid_block(
    key: tuple[str | int, ...], rows: Rows, coordinates: Sequence[np.ndarray]
) -> Block:
    """Dense block over the sorted union of each coordinate."""
    keep = first_rows(coordinates)
    axes, places = [], []
    for column in coordinates:
        values, place = np.unique(column[keep], return_inverse=True)
        axes.append(values)
        places.append(place)
    return fill(key, tuple(axes), places, rows.take(keep))


def curves_block(
    key: tuple[str | int, ...],
    rows: Rows,
    sites: Sequence[np.ndarray],
    points: np.ndarray,
    site_order: np.ndarray | None = None,
) -> Block:
    """Dense block of one curve over `points` per distinct site.

    Sites are in first-seen order of the rows, taken in `site_order` when given.
    """
    keep = first_rows([*sites, points])
    if site_order is not None:
        keep = keep[np.argsort(site_order[keep], kind="stable")]
    columns = [column[keep] for column in sites]
    site, first = group_codes(columns)
    axis = np.stack([column[first] for column in columns], axis=1)
    values, place = np.unique(points[keep], return_inverse=True)
    return fill(key, (axis, values), [site, place], rows.take(keep))


def fill(
    key: tuple[str | int, ...],
    axes: tuple[np.ndarray, ...],
    places: Sequence[np.ndarray],
    rows: Rows,
) -> Block:
    """Scatter distinct rows into a dense grid."""
    shape = tuple(len(axis) for axis in axes)
    latency_ms = np.full(shape, np.nan)
    origin = np.zeros(shape, dtype=np.uint8)
    latency_ms[tuple(places)] = rows.latency_ms
    origin[tuple(places)] = rows.origin
    return Block(key, axes, latency_ms, origin)
