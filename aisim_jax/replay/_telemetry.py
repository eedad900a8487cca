"""Queues, requests in flight and busy workers over virtual time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ._deployment import Deployment, Role
from ._outcome import Passes, Replayed
from ._statistics import statistics


POOLS = ("agg", "prefill", "decode")  # by number, as in `Admissions` and `Passes`


class Level(NamedTuple):
    """A count as a step function: count[i] holds from at_ms[i] to at_ms[i + 1]."""

    at_ms: Float[np.ndarray, " steps"]
    count: Int[np.ndarray, " steps"]

    def mean(self, end_ms: float) -> float:
        """Average over time from 0 to end_ms."""
        if not self.at_ms.size or end_ms <= 0:
            return 0.0
        spans = np.diff(np.append(self.at_ms, max(end_ms, self.at_ms[-1])))
        return float(self.count @ spans) / end_ms

    def peak(self) -> int:
        """Largest count."""
        return int(self.count.max(initial=0))


def level(
    enter_ms: Float[np.ndarray, " reqs"], leave_ms: Float[np.ndarray, " reqs"]
) -> Level:
    """How many requests are between entering and leaving, at every instant of change."""
    instants = np.concatenate([leave_ms, enter_ms])
    change = np.repeat([-1, 1], [leave_ms.size, enter_ms.size])
    order = np.argsort(instants, kind="stable")
    ordered = instants[order]
    last = np.append(ordered[1:] != ordered[:-1], True)[: ordered.size]
    return Level(ordered[last], np.cumsum(change[order])[last])


def duration_ms(replayed: Replayed) -> float:
    """Largest terminal instant, from 0; 0 when nothing ended."""
    return float(np.nan_to_num(replayed.terminal_ms, nan=0.0).max(initial=0.0))


def simulated_ms(replayed: Replayed, until_ms: float | None) -> float:
    """Last instant that was simulated: of a run that was cut off, its last event.

    Otherwise the largest terminal instant.
    """
    finished = duration_ms(replayed)
    if until_ms is None:
        return finished
    arrived = replayed.arrival_ms[replayed.arrival_ms <= until_ms]
    instants = [finished, float(arrived.max(initial=0.0))]
    if replayed.passes is not None:
        ends = replayed.passes().end_ms
        instants.append(float(ends[ends <= until_ms].max(initial=0.0)))
    return max(instants)


def waiting_level(
    replayed: Replayed, arrived: Bool[np.ndarray, " reqs"], end_ms: float
) -> Level:
    """Requests that have arrived and were not admitted yet."""
    left = np.where(
        np.isnan(replayed.first_admit_ms), replayed.terminal_ms, replayed.first_admit_ms
    )
    return level(replayed.arrival_ms[arrived], np.nan_to_num(left[arrived], nan=end_ms))


def admitted_level(replayed: Replayed, end_ms: float) -> Level:
    """Requests between their first admission and their end (also while preempted)."""
    admitted = ~np.isnan(replayed.first_admit_ms)
    return level(
        replayed.first_admit_ms[admitted],
        np.nan_to_num(replayed.terminal_ms[admitted], nan=end_ms),
    )


def queue_figures(
    replayed: Replayed, arrived: Bool[np.ndarray, " reqs"], end_ms: float
) -> dict[str, float]:
    """Time from arrival to first admission, and how many wait and run."""
    queued = (replayed.first_admit_ms - replayed.arrival_ms)[arrived]
    waits = statistics(queued[~np.isnan(queued)])
    waiting = waiting_level(replayed, arrived, end_ms)
    admitted = admitted_level(replayed, end_ms)
    return {
        "mean_queue_ms": waits.mean,
        "max_queue_ms": waits.max,
        "p90_queue_ms": waits.p90,
        "p99_queue_ms": waits.p99,
        "mean_waiting_requests": waiting.mean(end_ms),
        "max_waiting_requests": waiting.peak(),
        "mean_admitted_requests": admitted.mean(end_ms),
        "max_admitted_requests": admitted.peak(),
    }


def roles(deployment: Deployment) -> dict[str, tuple[int, Role]]:
    """Number of the pool and role, by the name of the role."""
    if deployment.prefill is None:
        return {"aggregated": (0, deployment.decode)}
    return {"prefill": (1, deployment.prefill), "decode": (2, deployment.decode)}


def hardware_figures(
    replayed: Replayed, deployment: Deployment, end_ms: float
) -> dict[str, Any]:
    """Busy and KV shares by role: of the whole role, and of each rank.

    peak_kv_share: the most blocks in use on any rank, of those it has.
    """
    figures: dict[str, Any] = {}
    if replayed.passes is not None:
        shares = busy_shares(replayed.passes(), deployment, end_ms)
        figures["busy_share"] = {
            name: sum(ranks) / len(ranks) for name, ranks in shares.items()
        }
        figures["busy_share_per_rank"] = shares
    peaks = {}
    for name, (pool, role) in roles(deployment).items():
        key = "peak_blocks" if pool == 0 else f"peak_blocks_{name}"
        if key in replayed.telemetry:
            peaks[name] = replayed.telemetry[key] / role.num_blocks
    return {**figures, **({"peak_kv_share": peaks} if peaks else {})}


def busy_shares(
    passes: Passes, deployment: Deployment, end_ms: float
) -> dict[str, list[float]]:
    """Share of the time to end_ms in which each rank runs a pass, by role."""
    shares = {}
    spent = np.minimum(passes.end_ms, end_ms) - np.minimum(passes.start_ms, end_ms)
    for name, (pool, role) in roles(deployment).items():
        here = passes.pool == pool
        busy = np.bincount(
            passes.worker[here],
            weights=spent[here],
            minlength=role.workers * role.ranks,
        )
        shares[name] = (busy / end_ms if end_ms > 0 else busy).tolist()
    return shares
