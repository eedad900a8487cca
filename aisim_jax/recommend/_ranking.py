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
) -> Ranked:
    """Pareto set over all candidates, then the best row of each layout.

    `strict_sla` first drops every candidate over the limit (it has no effect on a load
    target, which drops them anyway when any meets it).
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
    if load is not None:
        ranking = rank_for_load(
            candidates.group,
            latency_ms <= limit_ms,
            load,
            candidates.requests_per_s,
            candidates.concurrency,
            candidates.tokens_per_s_per_gpu,
            candidates.gpus,
            top_n,
        )
    else:
        ranking = rank_for_budget(
            candidates.group,
            latency_ms,
            limit_ms,
            cluster,
            latency_ms if whole_requests else -candidates.tokens_per_s_per_user,
            candidates.gpus,
            question.total_gpus,
            top_n,
        )
    return Ranked(candidates, cluster, front, ranking)
