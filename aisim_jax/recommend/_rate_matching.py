"""How many prefill and decode workers make one replica, for every pair of rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from aisim_jax.kernels import RoleConstants, pool_rate_per_s


class ReplicaLimits(NamedTuple):
    """Allowed replica shapes.

    `gpus`: allowed GPU totals of one replica, None = any total up to `max_gpus`.
    The role bounds apply only when both are given.
    """

    max_prefill_workers: int
    max_decode_workers: int
    max_gpus: int
    gpus: tuple[int, ...] | None = None
    max_prefill_gpus: int | None = None
    max_decode_gpus: int | None = None


class WorkerPairs(NamedTuple):
    """Best replica of each (decode row, prefill row).

    Where no replica shape is allowed: one worker each and a rate of -inf.
    """

    prefill_workers: Int[np.ndarray, "decode prefill"]
    decode_workers: Int[np.ndarray, "decode prefill"]
    requests_per_s: Float[np.ndarray, "decode prefill"]


def replica_shapes(
    prefill_gpus: int, decode_gpus: int, limits: ReplicaLimits
) -> tuple[Int[np.ndarray, " shapes"], Int[np.ndarray, " shapes"]]:
    """Allowed (prefill workers, decode workers), decode workers outermost."""
    decode, prefill = (
        axis.ravel()
        for axis in np.meshgrid(
            np.arange(1, limits.max_decode_workers + 1),
            np.arange(1, limits.max_prefill_workers + 1),
            indexing="ij",
        )
    )
    total = prefill * prefill_gpus + decode * decode_gpus
    allowed = total <= limits.max_gpus
    if limits.gpus is not None:
        allowed &= np.isin(total, limits.gpus)
    if limits.max_prefill_gpus is not None and limits.max_decode_gpus is not None:
        allowed &= prefill * prefill_gpus <= limits.max_prefill_gpus
        allowed &= decode * decode_gpus <= limits.max_decode_gpus
    return prefill[allowed], decode[allowed]


def match_workers(
    prefill_rate: Float[np.ndarray, " prefill"],
    prefill_gpus: Int[np.ndarray, " prefill"],
    decode_rate: Float[np.ndarray, " decode"],
    decode_gpus: Int[np.ndarray, " decode"],
    pairable: Bool[np.ndarray, "decode prefill"],
    limits: ReplicaLimits,
    constants: RoleConstants,
    *,
    budget_gpus: int | None = None,
) -> WorkerPairs:
    """Maximise min(a * P, c * D) / (n_p * P + n_d * D) over the allowed shapes.

    Rates in requests/s per worker, GPUs per worker. The first maximum wins with decode
    workers in the outer loop. Rows with equal GPU counts share their shapes, so the
    search is one masked argmax per pair of worker sizes. `budget_gpus` multiplies the
    objective by the share of that budget that whole replicas fill.
    """
    shape = (decode_rate.size, prefill_rate.size)
    best = WorkerPairs(
        np.ones(shape, np.int64), np.ones(shape, np.int64), np.full(shape, -np.inf)
    )
    for d_gpus in np.unique(decode_gpus):
        d_rows = np.flatnonzero(decode_gpus == d_gpus)
        for p_gpus in np.unique(prefill_gpus):
            p_rows = np.flatnonzero(prefill_gpus == p_gpus)
            prefill, decode = replica_shapes(int(p_gpus), int(d_gpus), limits)
            if not prefill.size:
                continue
            total = prefill * p_gpus + decode * d_gpus
            filled = np.ones(total.size)
            if budget_gpus is not None:
                filled = budget_gpus // total * total / budget_gpus
            d_pair, p_pair = np.nonzero(pairable[np.ix_(d_rows, p_rows)])
            d_index, p_index = d_rows[d_pair], p_rows[p_pair]
            supply, demand = prefill_rate[p_index], decode_rate[d_index]
            top = np.full(d_index.size, -np.inf)
            winner = np.zeros(d_index.size, np.int64)
            for place, (workers_p, workers_d, gpus, share) in enumerate(
                zip(prefill, decode, total, filled, strict=True)
            ):
                rate = pool_rate_per_s(supply, demand, workers_p, workers_d, constants)
                value = rate / gpus * share
                better = value > top
                top = np.where(better, value, top)
                winner = np.where(better, place, winner)
            best.prefill_workers[d_index, p_index] = prefill[winner]
            best.decode_workers[d_index, p_index] = decode[winner]
            best.requests_per_s[d_index, p_index] = pool_rate_per_s(
                supply, demand, prefill[winner], decode[winner], constants
            )
    return best
