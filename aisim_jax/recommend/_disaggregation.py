"""Which matched pairs the compatible sweep keeps for its latency targets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ._grids import Target
from ._parameters import SweepParameters
from ._rate_matching import WorkerPairs
from ._selection import (
    first_in_groups,
    ordered_within_groups,
    rounded,
    table_order,
)


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

    Per target: the prefill rows under its TTFT; per decode layout the best rows under
    its TPOT; the best pair of each layout by rate per GPU, then fewer GPUs, then the
    first; of these the best few. The pairs' worker counts do not depend on the target.
    """
    _, group = np.unique(np.asarray(decode.label, dtype=str), return_inverse=True)
    order = ordered_within_groups(group, decode.requests_per_s_per_gpu)
    group = group[order]
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    tpot_ms = decode.tpot_ms[order]
    kept: dict[tuple[int, int], None] = {}
    for ttft_ms in dict.fromkeys(target.ttft_ms for target in targets):
        p_rows = fast_prefill_rows(prefill, ttft_ms, parameters)
        if not p_rows.size or not order.size:
            continue
        gpus = (
            pairs.prefill_workers[np.ix_(order, p_rows)] * prefill.gpus[p_rows]
            + pairs.decode_workers[np.ix_(order, p_rows)] * decode.gpus[order, None]
        )
        rate = pairs.requests_per_s[np.ix_(order, p_rows)] * osl / gpus
        top = rate.max(axis=1)
        partner = np.where(rate == top[:, None], gpus, np.inf).argmin(axis=1)
        partner_gpus = np.take_along_axis(gpus, partner[:, None], axis=1)[:, 0]
        # Position of each decode row in the preference order (rate, GPUs, first).
        place = np.empty(order.size, np.int64)
        place[np.lexsort((partner_gpus, -top))] = np.arange(order.size)
        for target in targets:
            if target.ttft_ms != ttft_ms:
                continue
            meets = (tpot_ms > 0) & (tpot_ms < target.tpot_ms)
            meets = first_in_groups(group, meets, parameters.decode_candidates)
            meets &= np.isfinite(top)
            leader = np.minimum.reduceat(np.where(meets, place, order.size), starts)
            rows = np.flatnonzero(np.isin(place, leader))
            ranked = rows[table_order(rounded(top[rows]))]
            for row in ranked[: parameters.best_disaggregated]:
                kept[int(p_rows[partner[row]]), int(order[row])] = None
    return list(kept)
