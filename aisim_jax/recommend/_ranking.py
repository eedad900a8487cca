"""Frontier and ranking of one experiment's candidates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Integer

from ._deployments import Deployments
from ._experiment import Experiment
from ._pareto import pareto_front
from ._picking import (
    Load,
    Ranking,
    cluster_rate_per_gpu,
    first_best_of_groups,
    rank_for_budget,
    rank_for_load,
)


@dataclass(frozen=True, eq=False)
class Ranked:
    """Candidates with what the choice is made on.

    `cluster_rate`: tokens/s per GPU of the whole budget (of one replica under a load
    target, which has no budget to fill); `front`: Pareto rows by
    ascending speed (or latency); `ranking`: the chosen rows in order.
    """

    candidates: Deployments
    cluster_rate: Float[np.ndarray, " cands"]
    front: Integer[np.ndarray, " front"]
    ranking: Ranking


def limiting_latency(
    question: Experiment, candidates: Deployments
) -> tuple[Float[np.ndarray, " cands"], float]:
    """The latency that ranks (ms) and its limit: TPOT, or the whole request."""
    if question.request_latency_ms is not None:
        return candidates.request_latency_ms, question.request_latency_ms
    return candidates.tpot_ms, question.tpot_ms


def rank(
    question: Experiment,
    candidates: Deployments,
    *,
    top_n: int,
    strict_sla: bool,
    load: Load | None,
    compat: bool = False,
) -> Ranked:
    """Pareto set over all candidates, then the best row of each layout.

    `strict_sla` first drops every candidate over the limit (it has no effect on a load
    target, which drops them anyway when any meets it). When nothing meets the limit the
    rows are each layout's closest one; the compatible order keeps its best rate instead.
    """
    if strict_sla and load is None:
        latency_ms, limit_ms = limiting_latency(question, candidates)
        candidates = candidates.take(latency_ms <= limit_ms)
    latency_ms, limit_ms = limiting_latency(question, candidates)
    cluster = candidates.tokens_per_s_per_gpu
    if load is None:
        cluster = cluster_rate_per_gpu(cluster, candidates.gpus, question.total_gpus)
    whole_requests = question.request_latency_ms is not None
    speed = -latency_ms if whole_requests else candidates.tokens_per_s_per_user
    front = pareto_front(speed, cluster)
    if whole_requests:
        front = front[::-1]
    ranking = _choose(question, candidates, cluster, load, top_n, compat)
    if ranking.exceeds and not compat:
        nearest = first_best_of_groups(candidates.group, latency_ms, -cluster)
        late = _choose(
            question,
            candidates.take(nearest),
            cluster[nearest],
            load,
            nearest.size,
            False,
        )
        late = late._replace(rows=nearest[late.rows])
        order = np.argsort(latency_ms[late.rows], kind="stable")[:top_n]
        ranking = Ranking(
            late.rows[order],
            late.replicas[order],
            late.gpus[order],
            late.load_served_percent[order],
            late.exceeds,
        )
    return Ranked(candidates, cluster, front, ranking)


def _choose(
    question: Experiment,
    candidates: Deployments,
    cluster_rate: Float[np.ndarray, " cands"],
    load: Load | None,
    top_n: int,
    compat: bool,
) -> Ranking:
    latency_ms, limit_ms = limiting_latency(question, candidates)
    if load is not None:
        return rank_for_load(
            candidates.group,
            latency_ms <= limit_ms,
            load,
            candidates.requests_per_s,
            candidates.concurrency,
            candidates.tokens_per_s_per_gpu,
            candidates.gpus,
            top_n,
            compat,
        )
    whole_requests = question.request_latency_ms is not None
    return rank_for_budget(
        candidates.group,
        latency_ms,
        limit_ms,
        cluster_rate,
        latency_ms if whole_requests else -candidates.tokens_per_s_per_user,
        candidates.gpus,
        question.total_gpus,
        top_n,
    )
