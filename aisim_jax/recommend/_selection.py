"""Candidate sets of the compatible sweep: the best few rows per layout and target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ._grids import Target


def rounded(values: Float[np.ndarray, "*pts"]) -> Float[np.ndarray, "*pts"]:
    """Three decimals, halves to even: the precision of the compatible tables."""
    return np.round(values, 3)


def table_order(values: Float[np.ndarray, " pts"]) -> Int[np.ndarray, " pts"]:
    """Indices of a compatible table sorted by `values`, largest first.

    The order of equal values decides which of two equal deployments is recommended, so
    it has to be the recorded one: a scalar introsort of the reversed column, read
    backwards. NumPy vectorises its introsort for float64 but not for long double, on
    which the plain algorithm still runs.
    """
    backwards = values[::-1].astype(np.longdouble).argsort(kind="quicksort")[::-1]
    return values.size - 1 - backwards


def ordered_within_groups(
    group: Int[np.ndarray, " pts"], score: Float[np.ndarray, " pts"]
) -> Int[np.ndarray, " pts"]:
    """Indices sorted by group ascending, then score descending, then position."""
    return np.lexsort((-score, group))


class GroupCut(NamedTuple):
    """Members that a cut keeps, and groups where equal scores straddle it."""

    kept: Bool[np.ndarray, " pts"]
    tied_groups: Int[np.ndarray, " _"]


def first_in_groups(
    group: Int[np.ndarray, " pts"],
    score: Float[np.ndarray, " pts"],
    allowed: Bool[np.ndarray, " pts"],
    count: int,
) -> GroupCut:
    """The first `count` allowed members of each group; sorted by group, then score."""
    running = np.cumsum(allowed, dtype=np.int64)
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    before = running[starts] - allowed[starts]
    place = running - np.repeat(before, np.diff(np.append(starts, group.size)))
    last = np.flatnonzero(allowed & (place == count))
    first_out = np.flatnonzero(allowed & (place == count + 1))
    edge = last[np.searchsorted(group[last], group[first_out])]
    tied = score[edge] == score[first_out]
    return GroupCut(allowed & (place <= count), group[first_out[tied]])


def best_per_target(
    group: Int[np.ndarray, " pts"],
    score: Float[np.ndarray, " pts"],
    ttft_ms: Float[np.ndarray, " pts"],
    tpot_ms: Float[np.ndarray, " pts"],
    targets: Sequence[Target],
    count: int,
) -> Int[np.ndarray, " kept"]:
    """Rows that are, for some target, among the `count` best scores of their group.

    A row meets a target when ttft and tpot are both at most the target (unrounded
    values); `score` is the rounded request rate. Where equal scores straddle a cut the
    order of the compatible tables decides. The result is in order of first appearance:
    by group, then target, then score.
    """
    order = ordered_within_groups(group, score)
    sorted_group, sorted_score = group[order], score[order]
    ttft, tpot = ttft_ms[order], tpot_ms[order]
    first_target = np.full(order.size, len(targets))
    for place, target in enumerate(targets):
        meets = (tpot <= target.tpot_ms) & (ttft <= target.ttft_ms)
        kept, tied_groups = first_in_groups(sorted_group, sorted_score, meets, count)
        for tied in tied_groups:
            members = np.flatnonzero((sorted_group == tied) & meets)
            members = members[np.argsort(order[members])]
            kept[members] = False
            kept[members[table_order(sorted_score[members])[:count]]] = True
        first_target[kept & (first_target > place)] = place
    appearance = np.lexsort((first_target, sorted_group))
    return order[appearance[first_target[appearance] < len(targets)]]
