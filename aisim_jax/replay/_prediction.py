"""What a prediction answers: its runs, their report, their records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int

from ..traffic import Workload
from ._admissible import Admissible, Reason
from ._confidence import LEVEL, over_seeds
from ._deployment import Deployment
from ._goodput import Bounds
from ._metrics import summary
from ._outcome import REJECTED, Replayed
from ._request_lines import request_lines


@dataclass(frozen=True)
class Run:
    """One replay: requests as they were asked for, and what became of them.

    number: which seed, from 0.
    """

    number: int
    workload: Workload
    deployment: Deployment
    judged: Admissible
    replayed: Replayed

    def rejections(self) -> dict[Reason, int]:
        """How many requests were turned away, by reason."""
        return reason_counts(self.judged.reason[self.replayed.status == REJECTED])


def reason_counts(reasons: Int[np.ndarray, " reqs"]) -> dict[Reason, int]:
    """How many requests there are of each reason."""
    found, counts = np.unique(reasons, return_counts=True)
    return {Reason(r): int(n) for r, n in zip(found, counts, strict=True)}


@dataclass(frozen=True)
class Prediction:
    """What `predict` answers.

    report: the mapping that is written as prediction.json; ms, tokens, virtual seconds.
    runs: one replay per seed. captured: whether per-request records were asked for.
    """

    report: dict[str, Any]
    runs: tuple[Run, ...]
    captured: bool

    def request_lines(self) -> Iterator[str]:
        """Per-request records of every run as JSON lines."""
        for run in self.runs:
            words = {Reason.FITS: ""} | {
                reason: run.judged.sentence(reason) for reason in run.rejections()
            }
            rejected = np.where(run.replayed.status == REJECTED, run.judged.reason, 0)
            yield from request_lines(
                run.replayed,
                run.workload,
                run.deployment,
                [words[Reason(reason)] for reason in rejected.tolist()],
                run=run.number if len(self.runs) > 1 else None,
            )


def prediction_report(
    runs: Sequence[Run], *, bounds: Bounds | None, compat: bool, wall_ms: float
) -> dict[str, Any]:
    """Figures of the runs: of the only one, or means over seeds with their intervals.

    wall_ms: what the runs took.
    """
    reports = [
        summary(
            run.replayed, run.workload, run.deployment, bounds=bounds, compat=compat
        )
        for run in runs
    ]
    report = reports[0]
    if len(runs) > 1:
        report, half_width = over_seeds(reports)
        report |= {
            "seeds": len(runs),
            "confidence_level": LEVEL,
            "confidence_half_width": half_width,
        }
    per_wall_s = 1000 / wall_ms
    return report | {
        "rejection_reasons": _rejection_reasons(runs),
        "notes": list(runs[0].workload.notes),
        "percentiles": "histogram" if compat else "exact",
        # No energy data are built.
        "power_w": None,
        "power_coverage": None,
        "wall_time_ms": wall_ms,
        "processed_tokens_per_s": report["processed_tokens"] * per_wall_s,
        "processed_output_tokens_per_s": report["total_output_tokens"] * per_wall_s,
    }


def _rejection_reasons(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Rejected requests of all runs by reason, with the sentence for a person."""
    total: dict[Reason, int] = {}
    for run in runs:
        for reason, count in run.rejections().items():
            total[reason] = total.get(reason, 0) + count
    return [
        {
            "reason": reason.name.lower(),
            "requests": count,
            "sentence": next(
                run.judged.sentence(reason)
                for run in runs
                if reason in run.judged.limit_tokens
            ),
        }
        for reason, count in total.items()
    ]
