"""Which matched pairs the compatible sweep keeps for its latency targets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ._grids import Target
from ._parameters import SweepParameters
from ._rate_matching import WorkerPairs
from ._selection import rounded, table_order


class RoleRows(NamedTuple):
    """Rows of one role (rounded): one layout and batch each, in enumeration order."""

    label: tuple[str, ...]
    gpus: Int[np.ndarray, " rows"]
    concurrency: Float[np.ndarray, " rows"]
    ttft_ms: Float[np.ndarray, " rows"]
    tpot_ms: Float[np.ndarray, " rows"]
    requests_per_s: Float[np.ndarray, " rows"]
    requests_per_s_per_gpu: Float[np.ndarray, " rows"]


def fast_prefill_rows(
    rows: RoleRows, ttft_ms: float, parameters: SweepParameters
) -> Int[np.ndarray, " kept"]:
    """Prefill rows under the TTFT target, best rate per GPU first, smallest batch first."""
    meets = np.flatnonzero(parameters.ttft_correction * rows.ttft_ms < ttft_ms)
    order = np.lexsort((rows.concurrency[meets], -rows.requests_per_s_per_gpu[meets]))
    return meets[order[: parameters.prefill_candidates]]


def kept_pairs(
    prefill: RoleRows,
    decode: RoleRows,
    pairs: WorkerPairs,
    targets: Sequence[Target],
    osl: int,
    parameters: SweepParameters,
) -> list[tuple[int, int]]:
    """(prefill row, decode row) of every deployment that some target keeps.

    Per target: the prefill rows under its TTFT; per decode layout (label order) the best
    rows under its TPOT; the best pair of each layout by rate per GPU, then fewer GPUs,
    then the first; of these the best few. Worker counts do not depend on the target.
    """
    labels = np.asarray(decode.label, dtype=str)
    groups = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    kept: dict[tuple[int, int], None] = {}
    for ttft_ms in dict.fromkeys(target.ttft_ms for target in targets):
        p_rows = fast_prefill_rows(prefill, ttft_ms, parameters)
        if not p_rows.size or not groups:
            continue
        gpus = (
            pairs.prefill_workers[:, p_rows] * prefill.gpus[p_rows]
            + pairs.decode_workers[:, p_rows] * decode.gpus[:, None]
        )
        rate = pairs.requests_per_s[:, p_rows] * osl / gpus
        top = rate.max(axis=1)
        partner = np.where(rate == top[:, None], gpus, np.inf).argmin(axis=1)
        partner_gpus = np.take_along_axis(gpus, partner[:, None], axis=1)[:, 0]
        leaders = [
            _Leaders(rows, decode, top, partner_gpus, parameters.decode_candidates)
            for rows in groups
        ]
        for target in targets:
            if target.ttft_ms != ttft_ms:
                continue
            found = [row for one in leaders if (row := one.under(target.tpot_ms)) >= 0]
            rows = np.array(found, np.int64)
            ranked = rows[table_order(rounded(top[rows]))]
            for row in ranked[: parameters.best_disaggregated]:
                kept[int(p_rows[partner[row]]), int(row)] = None
    return list(kept)


class _Leaders:
    """The best row of one decode layout under each TPOT target, found once per set."""

    def __init__(
        self,
        rows: Int[np.ndarray, " rows"],
        decode: RoleRows,
        top: Float[np.ndarray, " decode"],
        gpus: Int[np.ndarray, " decode"],
        candidates: int,
    ) -> None:
        usable = rows[decode.tpot_ms[rows] > 0]
        usable = usable[
            np.argsort(-decode.requests_per_s_per_gpu[usable], kind="stable")
        ]
        self._rows, self._tpot_ms = usable, decode.tpot_ms[usable]
        self._top, self._gpus = top[usable], gpus[usable]
        self._candidates = candidates
        self._ascending = np.sort(self._tpot_ms)
        self._found: dict[int, int] = {}

    def under(self, tpot_ms: float) -> int:
        """Row index of the leader among rows faster than `tpot_ms`, -1 without one."""
        count = int(np.searchsorted(self._ascending, tpot_ms, side="left"))
        if count not in self._found:
            self._found[count] = self._leader(tpot_ms)
        return self._found[count]

    def _leader(self, tpot_ms: float) -> int:
        best = np.flatnonzero(self._tpot_ms < tpot_ms)[: self._candidates]
        best = best[np.isfinite(self._top[best])]
        if not best.size:
            return -1
        best = best[self._top[best] == self._top[best].max()]
        return int(self._rows[best[self._gpus[best].argmin()]])
