"""One prediction: configuration -> workload and deployment -> replay -> report."""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path

import numpy as np

from .._errors import InfeasibleError
from ..config import PredictionConfig
from ..traffic import Workload
from ._admissible import Admissible, Reason, admissible
from ._deployment import Deployment
from ._details import details
from ._goodput import Bounds
from ._outcome import COMPLETED
from ._prediction import Prediction, Run, prediction_report, reason_counts
from ._refusals import restored, without
from ._resolve import resolve_deployment
from ._resolved import Resolved
from ._run import replay_scenarios
from ._seeds import check_random, with_acceptance_seed, with_seed
from ._workload import build_workload


def predict(
    config: PredictionConfig,
    *,
    seeds: int | None = None,
    capture: bool = False,
    sections: Collection[str] = (),
    beside: Path | None = None,
) -> Prediction:
    """Simulate the configured deployment under the configured traffic.

    seeds: runs with different random draws, by default evaluation.seeds; figures are
    then means, with the half widths of their 95 % intervals. capture: keep per-request
    records for `write_prediction`. sections: details to add, of `SECTIONS`. beside:
    where trace files are looked for after the working directory.
    """
    seeds = config.evaluation.seeds if seeds is None else seeds
    resolved = resolve_deployment(config)
    check_random(config, resolved.deployment, seeds)
    started = time.perf_counter()
    asked = [_scenario(config, resolved, number, beside) for number in range(seeds)]
    compat = config.engine.compat
    # The reference runs into requests that can never be served; we take them out.
    refused = [
        np.zeros_like(judged.stalls) if compat else judged.stalls
        for _, _, judged in asked
    ]
    given = [
        (without(judged.workload, lost), deployment)
        for (_, deployment, judged), lost in zip(asked, refused, strict=True)
    ]
    for (workload, _), (_, _, judged) in zip(given, asked, strict=True):
        if not workload.size:
            raise InfeasibleError(nothing_served(reason_counts(judged.reason), judged))
    answers = replay_scenarios(given, log=True)
    runs = tuple(
        Run(number, *scenario, restored(answer, scenario[0], lost))
        for number, (scenario, answer, lost) in enumerate(
            zip(asked, answers, refused, strict=True)
        )
    )
    for run in runs:
        if not (run.replayed.status == COMPLETED).any():
            raise InfeasibleError(nothing_served(run.rejections(), run.judged))
    wall_ms = (time.perf_counter() - started) * 1000
    sla = config.evaluation.sla
    bounds = None if sla is None else Bounds(sla.ttft_ms, sla.itl_ms, sla.e2e_ms)
    report = prediction_report(runs, bounds=bounds, compat=compat, wall_ms=wall_ms)
    report |= {
        "kv_cache_precision": resolved.kv_cache_precision,
        "prediction_provenance": resolved.provenance,
    }
    if sections:
        report["details"] = details(sections, report, runs[0].replayed, resolved)
    return Prediction(report, runs, capture)


def _scenario(
    config: PredictionConfig, resolved: Resolved, number: int, beside: Path | None
) -> tuple[Workload, Deployment, Admissible]:
    workload = build_workload(with_seed(config, number), resolved, beside)
    deployment = with_acceptance_seed(resolved.deployment, number)
    return workload, deployment, admissible(workload, deployment)


def nothing_served(counts: dict[Reason, int], judged: Admissible) -> str:
    """Why not one request was served."""
    if not counts:
        return (
            "no request ends within the simulated time; raise "
            "traffic.stop.max_virtual_time_seconds"
        )
    reasons = "; ".join(
        f"{count:,} because {judged.sentence(reason)}"
        for reason, count in counts.items()
    )
    return f"every request is rejected: {reasons}"
