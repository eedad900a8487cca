"""Look-ups in measured tables by recursion over nested dictionaries: slow and obvious."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import log2, sqrt
from statistics import median
from typing import Any

import numpy as np


class Miss(Exception):
    """No measured data."""


class OutOfRange(Exception):
    """A coordinate lies outside its axis."""


def tree_of(axes: Sequence[np.ndarray], latency_ms: np.ndarray) -> dict[Any, Any]:
    """A dense array with NaN holes as nested dictionaries, keys ascending."""
    tree: dict[Any, Any] = {}
    for index in np.argwhere(~np.isnan(latency_ms)):
        keys = [axis[i].item() for axis, i in zip(axes, index, strict=True)]
        node = tree
        for key in keys[:-1]:
            node = node.setdefault(key, {})
        node[keys[-1]] = float(latency_ms[tuple(index)])
    return tree


def leaves_of(node: Any, above: tuple = ()) -> Iterator[tuple[tuple, float]]:
    """(coordinates, latency) of every leaf in the order of sorted keys."""
    if not isinstance(node, dict):
        yield above, node
        return
    for key in sorted(node):
        yield from leaves_of(node[key], (*above, key))


def descend(
    node: Any,
    query: tuple,
    sol: Callable[..., float],
    root_axis: int | None = None,
    depth: int = 0,
) -> float:
    """Value at `query` of a ragged tree; `root_axis` blends square roots."""
    if depth == len(query):
        return node
    want = query[depth]
    if want in node:
        return descend(node[want], query, sol, root_axis, depth + 1)
    if not min(node) < want < max(node):
        raise OutOfRange
    low = max(key for key in node if key < want)
    high = min(key for key in node if key > want)
    values, outside = {}, False
    for key in (low, high):
        try:
            values[key] = descend(node[key], query, sol, root_axis, depth + 1)
        except OutOfRange:
            outside = True
        except Miss:
            pass
    if not values:
        raise OutOfRange if outside else Miss
    if len(values) == 2:
        weight = (want - low) / (high - low)
        a, b = values[low], values[high]
        if depth == root_axis:
            return (sqrt(a) + weight * (sqrt(b) - sqrt(a))) ** 2
        return a + weight * (b - a)
    ((key, value),) = values.items()
    here = sol(*query)
    there = sol(*query[:depth], key, *query[depth + 1 :])
    return value * here / there if here > 0 and there > 0 else value


class Grid:
    """A ragged tree with the rule beyond its edges."""

    def __init__(
        self, tree: dict, sol: Callable[..., float], root_axis: int | None
    ) -> None:
        self.tree, self.sol, self.root_axis = tree, sol, root_axis
        self.leaves = [
            (tuple(map(_log2, place)), sol(*place) / ms)
            for place, ms in leaves_of(tree)
            if ms > 0 and sol(*place) > 0
        ]

    def at(self, *query: float) -> float:
        """Latency at (heads, outer, inner), ms."""
        try:
            return descend(self.tree, query, self.sol, self.root_axis)
        except OutOfRange:
            return self.sol(*query) / self.held(query)

    def held(self, query: tuple) -> float:
        """Utilisation blended from the nearest leaves in log2 distance."""
        target = [_log2(value) for value in query]
        near = sorted(
            (
                (sqrt(sum((a - b) ** 2 for a, b in zip(logs, target, strict=True))), u)
                for logs, u in self.leaves
            ),
            key=lambda pair: pair[0],
        )
        kept = near[:4]
        if len(near) > 4:
            reach = near[4][0]
            weights = [(max(reach - d, 0) / (reach * d + 1e-12)) ** 2 for d, _ in kept]
        else:
            weights = [1 / (d * d + 1e-12) for d, _ in kept]
        if sum(weights) == 0:
            weights = [1.0] * len(kept)
        blend = sum(w * util for w, (_, util) in zip(weights, kept, strict=True))
        return blend / sum(weights)


def _log2(value: float) -> float:
    return log2(max(value, 1e-12))


def on_curve(
    curve: Mapping[Any, float], want: float, sol: Callable[[float], float]
) -> float:
    """One axis: a key, a line between neighbours, or the end scaled by its bound."""
    if want in curve:
        return curve[want]
    low, high = min(curve), max(curve)
    if low < want < high:
        low = max(key for key in curve if key < want)
        high = min(key for key in curve if key > want)
        share = (want - low) / (high - low)
        return curve[low] + share * (curve[high] - curve[low])
    end = low if want < low else high
    return sol(want) / (sol(end) / curve[end])


class GemmTable:
    """Curves in m at scattered (n, k) sites, `sites` in first-seen order."""

    def __init__(
        self,
        sites: dict[tuple[int, int], dict[int, float]],
        sol: Callable[[int, int, int], float],
    ) -> None:
        self.sol = sol
        self.sites = {
            (n, k): {m: max(ms, sol(m, n, k)) for m, ms in curve.items()}
            for (n, k), curve in sites.items()
        }

    def at(self, m: int, n: int, k: int) -> float:
        """Latency of an (m, k) x (k, n) product, ms."""
        if (n, k) in self.sites:
            return self.on_site(m, n, k)
        near = self.neighbours(m, n, k)
        weights = [1 / (d * d + 1e-12) for d, _ in near]
        utils = [self.sol(m, *site) / self.on_site(m, *site) for _, site in near]
        blend = sum(w * u for w, u in zip(weights, utils, strict=True))
        return self.sol(m, n, k) / (blend / sum(weights))

    def on_site(self, m: int, n: int, k: int) -> float:
        curve = self.sites[n, k]
        if m in curve:
            return curve[m]
        keys = sorted(curve)
        if len(keys) >= 2 and keys[0] < m < keys[-1]:
            return on_curve(curve, m, lambda _: 0.0)
        end = keys[:3] if m < keys[0] else keys[-3:]
        return self.sol(m, n, k) / median(self.sol(p, n, k) / curve[p] for p in end)

    def neighbours(self, m: int, n: int, k: int) -> list[tuple[float, tuple]]:
        pool = [s for s, c in self.sites.items() if min(c) <= m <= max(c)]
        pool = pool or list(self.sites)
        placed = [(log2(s[0] / n), log2(s[1] / k), s) for s in pool]
        near = [(sqrt(a * a + b * b), s) for a, b, s in placed]
        kept = [pair for pair in near if pair[0] <= 2.0]
        if not kept:
            beyond_n = n > max(s[0] for s in pool)
            beyond_k = k > max(s[1] for s in pool)
            below = n < min(s[0] for s in pool) or k < min(s[1] for s in pool)
            if beyond_n == beyond_k or below:
                raise Miss
            kept = [
                pair
                for pair, (a, b, _) in zip(near, placed, strict=True)
                if abs(b if beyond_n else a) <= 2.0
            ]
        if not kept:
            raise Miss
        return sorted(kept, key=lambda pair: pair[0])[:4]


def clamped(table: dict, m: float, k: float) -> tuple[float, float, float]:
    """(value, m, k) of a two-axis tree after moving m and k into its range."""
    columns = {key for row in table.values() for key in row}
    m = min(max(m, min(table)), max(table))
    k = min(max(k, min(columns)), max(columns))
    return descend(table, (m, k), lambda *_: 0.0), m, k
