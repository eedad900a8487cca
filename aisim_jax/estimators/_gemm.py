"""GEMM latency over scattered (n, k) sites, each a curve in m (tokens).

A measured site is exact at its m keys, linear between them and, beyond either end,
SOL / median utilisation of the three points at that end. An unmeasured site takes the
inverse-square-distance mean utilisation of its four nearest sites (log2 of n and k,
within two octaves) at the same m.
"""

from __future__ import annotations

import numpy as np

from ..systems import GemmTable, SystemSpec
from ._speed_of_light import gemm_bound


REACH_OCTAVES = 2.0
NEIGHBOURS = 4
END_POINTS = 3


class GemmSites:
    """One precision's GEMM table, raised to the speed of light, ready to query."""

    def __init__(self, spec: SystemSpec, quant: str, table: GemmTable) -> None:
        self._spec = spec
        self._quant = quant
        self._n, self._k = table.n.astype(np.float64), table.k.astype(np.float64)
        self._log_n, self._log_k = np.log2(self._n), np.log2(self._k)
        self._m = table.m.astype(np.float64)
        floor = gemm_bound(
            spec, quant, self._m[None, :], self._n[:, None], self._k[:, None]
        ).ms
        self._latency = np.maximum(table.latency_ms, floor)  # NaN stays NaN
        self._sol = floor
        measured = ~np.isnan(self._latency)
        self._measured = measured
        self._m_low = np.where(measured, self._m[None, :], np.inf).min(axis=1)
        self._m_high = np.where(measured, self._m[None, :], -np.inf).max(axis=1)
        self._index = {
            (int(n), int(k)): i
            for i, (n, k) in enumerate(zip(table.n, table.k, strict=True))
        }

    def latency_ms(self, n: int, k: int, m: np.ndarray) -> np.ndarray:
        """Latency of an (m, k) x (k, n) product at integer m; NaN = no data."""
        m = np.asarray(m, np.float64)
        site = self._index.get((n, k))
        if site is not None:
            return self._on_curve(site, m)
        return self._between_sites(n, k, m)

    def measured_at(self, n: int, k: int, m: int) -> bool:
        """Whether this exact point was measured."""
        site = self._index.get((n, k))
        hit = np.flatnonzero(self._m == m)
        return site is not None and hit.size > 0 and bool(self._measured[site, hit[0]])

    def reaches(self, n: int, k: int, m: int) -> bool:
        """Whether the site is measured and m lies inside its curve."""
        site = self._index.get((n, k))
        return site is not None and bool(self._m_low[site] <= m <= self._m_high[site])

    def _on_curve(self, site: int, m: np.ndarray) -> np.ndarray:
        valid = self._measured[site]
        keys, values = self._m[valid], self._latency[site, valid]
        inside = np.interp(m, keys, values)
        outside = m != keys[0] if keys.size < 2 else (m < keys[0]) | (m > keys[-1])
        if not outside.any():
            return inside
        util = self._sol[site, valid] / values
        end_util = np.where(
            m < keys[0],
            np.median(util[:END_POINTS]),
            np.median(util[-END_POINTS:]),
        )
        sol = gemm_bound(self._spec, self._quant, m, self._n[site], self._k[site]).ms
        return np.where(outside, sol / end_util, inside)

    def _between_sites(self, n: int, k: int, m: np.ndarray) -> np.ndarray:
        out = np.full(m.shape, np.nan)
        d_n, d_k = self._log_n - np.log2(n), self._log_k - np.log2(k)
        distance = np.sqrt(d_n * d_n + d_k * d_k)
        sol = gemm_bound(self._spec, self._quant, m, n, k).ms
        # The candidate set only changes where m crosses the end of some curve.
        edges = np.unique(np.concatenate([self._m_low, self._m_high]))
        segment = np.searchsorted(edges, m, "left") + np.searchsorted(edges, m, "right")
        for part in np.unique(segment):
            here = segment == part
            sites = self._neighbours(n, k, m[here][0], d_n, d_k, distance)
            if sites.size == 0:
                continue
            util_sum = np.zeros(int(here.sum()))
            weight_sum = 0.0
            for site in sites:
                weight = 1.0 / (distance[site] ** 2 + 1e-12)
                bound = gemm_bound(
                    self._spec, self._quant, m[here], self._n[site], self._k[site]
                ).ms
                util_sum += weight * bound / self._on_curve(int(site), m[here])
                weight_sum += weight
            out[here] = sol[here] / (util_sum / weight_sum)
        return out

    def _neighbours(self, n, k, m, d_n, d_k, distance) -> np.ndarray:
        covers = (self._m_low <= m) & (m <= self._m_high)
        pool = np.flatnonzero(covers) if covers.any() else np.arange(covers.size)
        near = pool[distance[pool] <= REACH_OCTAVES]
        if near.size == 0:
            above_n = n > self._n[pool].max()
            above_k = k > self._k[pool].max()
            below = n < self._n[pool].min() or k < self._k[pool].min()
            if above_n == above_k or below:
                return pool[:0]
            other = d_k if above_n else d_n
            near = pool[np.abs(other[pool]) <= REACH_OCTAVES]
        return near[np.argsort(distance[near], kind="stable")[:NEIGHBOURS]]
