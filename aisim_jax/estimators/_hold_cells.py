"""Which leaves can matter beyond the grid, per cell of the log2 plane, filled on demand.

A leaf can be among the five nearest of some query in a cell only if its least distance
to the cell does not exceed the fifth smallest greatest distance. Candidates are narrowed
in two passes, coarse cells first, so that filling stays cheap.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from jaxtyping import Float, Int

from ..kernels import (
    CELL_EDGE,
    CELLS_PER_OCTAVE,
    NARROW,
    WIDE_ROW,
    cell_index,
)
from ._attention import AttentionTable
from ._buckets import power_of_two, row_bucket, whole_steps
from ._hold import KEPT
from ._plain import PLAIN


SEQUENCE_OCTAVES, BATCH_OCTAVES = 22, 14
NEAREST = KEPT + 1
COARSE = 16  # fine cells along one side of a coarse cell


def cell_shape(is_context: bool) -> tuple[int, int]:
    """Cells along (outer, inner); coordinates beyond them are not tabulated."""
    octaves = (SEQUENCE_OCTAVES, BATCH_OCTAVES)
    outer, inner = octaves if is_context else octaves[::-1]
    return outer * CELLS_PER_OCTAVE, inner * CELLS_PER_OCTAVE


class HoldCells:
    """Candidate leaves of one slice at one head count."""

    def __init__(self, table: AttentionTable) -> None:
        leaves = table.leaves
        self.shape = cell_shape(table.is_context)
        self.row = np.full(self.shape, -1, np.int32)
        self.near: list[Float[np.ndarray, "near four"]] = []
        self._geometry = np.column_stack(
            [(leaves.logs[:, 0] - np.log2(table.heads)) ** 2, leaves.logs[:, 1:]]
        )
        self._key = self._geometry.tobytes()
        self._util = leaves.util
        self._lists: dict[tuple[int, int], list[list[float]]] = {}

    @property
    def usable(self) -> bool:
        """Whether the slice has enough leaves for cells (else the rule runs dense)."""
        return self._util.size >= NEAREST

    def leaves_at(self, log_outer: float, log_inner: float) -> list[list[float]] | None:
        """Candidate leaves of one query; None where cells are not tabulated."""
        if log_outer < 0 or log_inner < 0:
            return None
        at = cell_index(PLAIN, log_outer), cell_index(PLAIN, log_inner)
        found = self._lists.get(at)
        if found is not None:
            return found
        if not self.usable or at[0] >= self.shape[0] or at[1] >= self.shape[1]:
            return None
        if self.row[at] < 0:
            self.fill(np.array([2.0**log_outer]), np.array([2.0**log_inner]))
        found = self._lists[at] = self.near[self.row[at]].tolist()
        return found

    def fill(
        self, outer: Float[np.ndarray, " n"], inner: Float[np.ndarray, " n"]
    ) -> None:
        """Tabulate the cells of these coordinates."""
        if not self.usable:
            return
        whole = (outer >= 1) & (inner >= 1)  # a length of 0 has no cell
        outer, inner = outer[whole], inner[whole]
        at_outer = cell_index(np, np.log2(outer)).astype(np.int64)
        at_inner = cell_index(np, np.log2(inner)).astype(np.int64)
        inside = (at_outer < self.shape[0]) & (at_inner < self.shape[1])
        flat = np.unique(at_outer[inside] * self.shape[1] + at_inner[inside])
        flat = flat[self.row.reshape(-1)[flat] < 0]
        for cell in flat:
            self.row.reshape(-1)[cell] = len(self.near)
            found = _candidates(self._key, *divmod(int(cell), self.shape[1]))
            self.near.append(
                np.column_stack([self._geometry[found], self._util[found]])
            )


@lru_cache(maxsize=1 << 17)
def _candidates(geometry: bytes, outer: int, inner: int) -> Int[np.ndarray, " near"]:
    """Leaves that can matter in one fine cell."""
    coarse = _coarse(geometry, outer // COARSE, inner // COARSE)
    points = np.frombuffer(geometry).reshape(-1, 3)[coarse]
    return coarse[_reachable(points, outer, inner, 1.0 / CELLS_PER_OCTAVE)]


@lru_cache(maxsize=1 << 13)
def _coarse(geometry: bytes, outer: int, inner: int) -> Int[np.ndarray, " near"]:
    points = np.frombuffer(geometry).reshape(-1, 3)
    return np.flatnonzero(_reachable(points, outer, inner, COARSE / CELLS_PER_OCTAVE))


def _reachable(points: np.ndarray, outer: int, inner: int, side: float) -> np.ndarray:
    """Leaves whose least distance to the cell is within the fifth greatest one."""
    least, most = points[:, 0].copy(), points[:, 0].copy()
    for axis, cell in ((1, outer), (2, inner)):
        from_low = points[:, axis] - (cell * side - 2 * CELL_EDGE)
        from_high = points[:, axis] - ((cell + 1) * side + 2 * CELL_EDGE)
        gap = np.maximum(np.maximum(from_high, -from_low), 0.0)
        far = np.maximum(np.abs(from_low), np.abs(from_high))
        least += gap * gap
        most += far * far
    fifth = np.partition(most, NEAREST - 1)[NEAREST - 1]
    return least <= fifth * (1.0 + 1e-12)


def stack_cells(
    members: list[HoldCells], is_context: bool
) -> tuple[Int[np.ndarray, "groups outer inner"], Float[np.ndarray, "rows columns"]]:
    """One cell map per member and one shared list of candidate rows, padded."""
    leaves = [leaf for member in members for leaf in member.near]
    widths = np.array([leaf.shape[0] for leaf in leaves], np.int64)
    width = whole_steps(max(int(widths.max(initial=0)), 2 * NARROW), NARROW)
    cells = np.full((power_of_two(len(members)), *cell_shape(is_context)), -1, np.int32)
    near = np.zeros((row_bucket(len(leaves)), width, 4))
    near[:, :, 0], near[:, :, 3] = np.inf, 1.0
    for row, leaf in enumerate(leaves):
        near[row, : leaf.shape[0]] = leaf
    code = np.arange(len(leaves)) + np.where(widths > NARROW, WIDE_ROW, 0)
    start = 0
    for g, member in enumerate(members):
        own = code[start : start + len(member.near)]
        filled = member.row >= 0
        cells[g][filled] = own[member.row[filled]]
        start += len(member.near)
    return cells, near.reshape(near.shape[0], -1)
