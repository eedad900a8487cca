"""From a candidate set to a ranking: fixed GPU budget, or a load to carry."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from .._errors import InvalidInputError


class Load(NamedTuple):
    """What the deployment must carry: exactly one of the two, finite and above zero.

    `max_gpus` caps the answer; without it the fewest GPUs win.
    """

    request_rate: float | None = None  # requests/s
    concurrency: float | None = None  # requests in flight
    max_gpus: int | None = None


class Ranking(NamedTuple):
    """Chosen rows in order, with what each needs.

    `exceeds` says that no candidate meets the latency limit and the rows are merely the
    closest ones.
    """

    rows: Int[np.ndarray, " rows"]
    replicas: Int[np.ndarray, " rows"]
    gpus: Int[np.ndarray, " rows"]
    load_served_percent: Float[np.ndarray, " rows"]
    exceeds: bool


def check_load(load: Load) -> None:
    """Refuse anything but exactly one finite, positive load."""
    given = [x for x in (load.request_rate, load.concurrency) if x is not None]
    if len(given) != 1:
        raise InvalidInputError(
            f"{len(given)} load targets given; give exactly one of "
            "target_request_rate and target_concurrency"
        )
    if not np.isfinite(given[0]) or given[0] <= 0:
        raise InvalidInputError(
            f"load target {given[0]} is not a finite number above 0; "
            "give requests/s or concurrent requests"
        )
    if load.max_gpus is not None and load.max_gpus < 1:
        raise InvalidInputError(
            f"max_gpus={load.max_gpus} must be at least 1; leave it out for no cap"
        )


def cluster_rate_per_gpu(
    rate_per_gpu: Float[np.ndarray, " pts"],
    replica_gpus: Int[np.ndarray, " pts"],
    total_gpus: int,
) -> Float[np.ndarray, " pts"]:
    """Rate per GPU of the whole budget: GPUs that no replica fills are charged.

    rate * floor(total / N) * N / total
    """
    return rate_per_gpu * (total_gpus // replica_gpus) * replica_gpus / total_gpus


def first_best_of_groups(
    group: Int[np.ndarray, " pts"], *keys: Float[np.ndarray, " pts"]
) -> Int[np.ndarray, " groups"]:
    """One row per group: smallest first key, then the next, then the first row."""
    order = np.lexsort((*reversed(keys), group))
    return order[np.diff(group[order], prepend=-1) != 0]


def rank_for_budget(
    group: Int[np.ndarray, " pts"],
    latency_ms: Float[np.ndarray, " pts"],
    limit_ms: float,
    cluster_rate: Float[np.ndarray, " pts"],
    tie_break: Float[np.ndarray, " pts"],
    replica_gpus: Int[np.ndarray, " pts"],
    total_gpus: int,
    top_n: int,
) -> Ranking:
    """The best row of each layout under the latency limit, best cluster rate first.

    `tie_break` is smaller-is-better (minus tokens/s/user, or the request latency). When
    nothing meets the limit every layout's best row is ranked by latency instead.
    """
    meets = np.flatnonzero(latency_ms <= limit_ms)
    exceeds = not meets.size
    pool = np.arange(group.size) if exceeds else meets
    rows = pool[first_best_of_groups(group[pool], -cluster_rate[pool])]
    if exceeds:
        rows = rows[np.argsort(latency_ms[rows], kind="stable")]
    else:
        rows = rows[np.lexsort((tie_break[rows], -cluster_rate[rows]))]
    rows = rows[:top_n]
    replicas = total_gpus // replica_gpus[rows]
    return Ranking(
        rows,
        replicas,
        replicas * replica_gpus[rows],
        np.full(rows.size, 100.0),
        exceeds,
    )


def rank_for_load(
    group: Int[np.ndarray, " pts"],
    meets: Bool[np.ndarray, " pts"],
    load: Load,
    requests_per_s: Float[np.ndarray, " pts"],
    concurrency: Float[np.ndarray, " pts"],
    rate_per_gpu: Float[np.ndarray, " pts"],
    replica_gpus: Int[np.ndarray, " pts"],
    top_n: int,
    compat: bool = False,
) -> Ranking:
    """Rows that carry the load with the fewest GPUs; one row per layout.

    replicas = ceil(load / what one replica carries), at least 1. Under a GPU ceiling,
    where nothing fits whole, replicas are cut to it and the share of the load that is
    served is reported; the compatible share counts replicas, not what they carry.
    """
    check_load(load)
    exceeds = not meets.any()
    pool = np.arange(group.size) if exceeds else np.flatnonzero(meets)
    carried = requests_per_s if load.request_rate is not None else concurrency
    asked = load.request_rate if load.request_rate is not None else load.concurrency
    idle = carried[pool] <= 0
    needed = np.ceil(asked / np.where(idle, 1.0, carried[pool]))
    replicas = np.maximum(1, np.where(idle, np.inf, needed))
    pool, replicas = pool[~idle], replicas[~idle].astype(np.int64)
    gpus = replicas * replica_gpus[pool]
    served = np.full(pool.size, 100.0)
    if load.max_gpus is not None:
        fits = gpus <= load.max_gpus
        if fits.any():
            pool, replicas, gpus, served = (
                x[fits] for x in (pool, replicas, gpus, served)
            )
        else:
            capped = np.maximum(1, load.max_gpus // replica_gpus[pool])
            whole = replicas if compat else asked / carried[pool]
            served = np.round(np.minimum(capped / whole, 1.0) * 100.0, 1)
            replicas, gpus = capped, capped * replica_gpus[pool]
            cluster = rate_per_gpu[pool] * gpus
            best = first_best_of_groups(group[pool], -cluster)
            best = best[np.argsort(-cluster[best], kind="stable")][:top_n]
            return Ranking(
                pool[best], replicas[best], gpus[best], served[best], exceeds
            )
    best = first_best_of_groups(group[pool], gpus.astype(np.float64))
    best = best[np.lexsort((-rate_per_gpu[pool][best], gpus[best]))][:top_n]
    return Ranking(pool[best], replicas[best], gpus[best], served[best], exceeds)
