"""The answer of a sweep: arrays of everything, records of what matters."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Integer

from ._evaluation import Evaluation
from ._experiment import SERVING_MODES, Experiment
from ._layouts import LayoutLists
from ._outcome import Failure
from ._pareto import pareto_front
from ._picking import Ranking
from ._ranking import Ranked, limiting_latency
from ._reasons import count_reasons
from ._records import DeploymentRecord, WorkerRecord


@dataclass(frozen=True, eq=False)
class ExperimentResult:
    """One experiment: its question, every point, candidates, ranking and frontier.

    `evaluation.aggregated` (or `.prefill` and `.decode`) hold all points as arrays and
    `evaluation.codes` their reasons; `failure` explains an experiment without answer.
    """

    name: str
    question: Experiment
    lists: dict[str, LayoutLists]
    evaluation: Evaluation
    ranked: Ranked
    failure: Failure | None

    @property
    def counts(self) -> dict[str, int]:
        """Evaluated points by the name of their reason."""
        return count_reasons(*self.evaluation.codes)

    @cached_property
    def best(self) -> tuple[DeploymentRecord, ...]:
        """Ranked deployments, best first."""
        ranking = self.ranked.ranking
        return self._records(ranking.rows, ranking)

    @cached_property
    def pareto(self) -> tuple[DeploymentRecord, ...]:
        """Non-dominated deployments by ascending speed (or latency)."""
        return self._records(self.ranked.front)

    def _records(
        self, rows: Integer[np.ndarray, " rows"], ranking: Ranking | None = None
    ) -> tuple[DeploymentRecord, ...]:
        return tuple(
            self.record(int(row), ranking, place) for place, row in enumerate(rows)
        )

    def record(
        self, row: int, ranking: Ranking | None = None, place: int = 0
    ) -> DeploymentRecord:
        """Candidate `row` as a record; `place` is its position in `ranking`."""
        found, question = self.ranked.candidates, self.question
        latency_ms, limit_ms = limiting_latency(question, found)
        gpus = int(found.gpus[row])
        replicas = max(question.total_gpus // gpus, 1)
        served = 100.0
        if ranking is not None:
            replicas = int(ranking.replicas[place])
            served = float(ranking.load_served_percent[place])
        pool = next(iter(self.evaluation.pools.values())).surfaces.pool
        return DeploymentRecord(
            model=question.model,
            serving_mode=question.serving_mode,
            backend=question.backend,
            version=pool.version,
            workers=self._workers(row),
            ttft_ms=float(found.ttft_ms[row]),
            tpot_ms=float(found.tpot_ms[row]),
            request_latency_ms=float(found.request_latency_ms[row]),
            tokens_per_s_per_user=float(found.tokens_per_s_per_user[row]),
            tokens_per_s_per_gpu=float(found.tokens_per_s_per_gpu[row]),
            cluster_tokens_per_s_per_gpu=float(self.ranked.cluster_rate[row]),
            tokens_per_s=float(found.tokens_per_s[row]),
            requests_per_s=float(found.requests_per_s[row]),
            concurrency=float(found.concurrency[row]),
            gpus_per_replica=gpus,
            replicas=replicas,
            kv_precision=pool.precision.kv,
            meets_targets=bool(latency_ms[row] <= limit_ms),
            load_served_percent=served,
        )

    def _workers(self, row: int) -> tuple[WorkerRecord, ...]:
        found, evaluation = self.ranked.candidates, self.evaluation
        if evaluation.aggregated is not None:
            return (self._worker("agg", int(found.point[row]), 1),)
        return (
            self._worker(
                "prefill", int(found.prefill[row]), int(found.prefill_workers[row])
            ),
            self._worker(
                "decode", int(found.point[row]), int(found.decode_workers[row])
            ),
        )

    def _worker(self, role: str, point: int, workers: int) -> WorkerRecord:
        evaluation = self.evaluation
        aggregated = evaluation.aggregated
        points = evaluation.table(role)
        budget = 0 if aggregated is None else aggregated.ctx_tokens[point]
        layout = evaluation.layouts(role)[points.layout[point]]
        pool = evaluation.pools[role].surfaces.pool
        return WorkerRecord(
            role=role,
            workers=workers,
            **asdict(layout),
            batch=int(points.batch[point]),
            context_budget_tokens=int(budget),
            memory_gib=float(points.memory_gib[point]),
            requests_per_s=float(points.requests_per_s[point]),
            system=pool.tables.spec.name,
            backend=pool.tables.backend,
            version=pool.version,
        )

    def search_space(self) -> dict[str, Any]:
        """Candidate sizes and layouts per role, and why layouts were left out."""
        return {
            role: {
                "candidates": {k: list(v) for k, v in lists._asdict().items()},
                "layouts": [
                    list(asdict(pool.surfaces.layouts[lane]).values())
                    for lane in pool.lanes
                ],
                "rejected": {
                    layout.label: str(error) for layout, error in pool.rejected.items()
                },
            }
            for (role, lists), pool in zip(
                self.lists.items(), self.evaluation.pools.values(), strict=True
            )
        }


@dataclass(frozen=True, eq=False)
class SweepResult:
    """All experiments of a sweep and what to run.

    `failures` holds the sentence of every experiment that could not be evaluated at
    all (no tables for its engine, unknown family); others explain themselves.
    """

    experiments: tuple[ExperimentResult, ...]
    failures: dict[str, str]
    top_n: int
    by_load: bool
    compat: bool

    @property
    def models(self) -> tuple[str, ...]:
        """Models that were asked for, in order."""
        return tuple(dict.fromkeys(e.question.model for e in self.experiments))

    def best(
        self, serving_mode: str, model: str | None = None
    ) -> tuple[DeploymentRecord, ...]:
        """Best deployments of one mode over engines and systems, best first.

        `model` is needed only where several were asked for; default the first.
        """
        found = self._of(serving_mode, model)
        if len(found) == 1:
            return found[0].best
        rows = [row for e in found for row in e.best]
        return tuple(sorted(rows, key=self._merit)[: self.top_n])

    def pareto(
        self, serving_mode: str, model: str | None = None
    ) -> tuple[DeploymentRecord, ...]:
        """Frontier of one mode over engines and systems, by ascending speed."""
        found = self._of(serving_mode, model)
        rows = [row for e in found for row in e.pareto]
        if not rows:
            return ()
        whole = found[0].question.request_latency_ms is not None
        speed = np.array(
            [-r.request_latency_ms if whole else r.tokens_per_s_per_user for r in rows]
        )
        rate = np.array([row.cluster_tokens_per_s_per_gpu for row in rows])
        front = pareto_front(speed, rate)
        return tuple(rows[i] for i in (front[::-1] if whole else front))

    def chosen_for(self, model: str) -> DeploymentRecord | None:
        """The deployment to run for `model`; aggregated wins a tie."""
        leaders = [
            rows[0] for mode in SERVING_MODES if (rows := self.best(mode, model))
        ]
        return min(leaders, key=self._merit) if leaders else None

    @property
    def chosen(self) -> DeploymentRecord | None:
        """The deployment to run for the first (or only) model."""
        return self.chosen_for(self.models[0]) if self.models else None

    @property
    def counts(self) -> dict[str, int]:
        """Evaluated points of all experiments by the name of their reason."""
        return _total(self.experiments)

    def counts_of(self, serving_mode: str) -> dict[str, int]:
        """The same for one mode; a disaggregated point is one worker, not a pair."""
        return _total(
            e for e in self.experiments if e.question.serving_mode == serving_mode
        )

    def _merit(self, row: DeploymentRecord) -> tuple[bool, float, float]:
        """Smaller is better: fewest GPUs for a load, largest cluster rate for a budget.

        Deployments that meet the targets come first, then those that miss them least;
        the compatible order does not ask.
        """
        late = not row.meets_targets and not self.compat
        rate = row.cluster_tokens_per_s_per_gpu
        if late:
            return late, self._limiting_ms(row), -rate
        if self.by_load:
            return late, row.gpus_used, 0.0 if self.compat else -rate
        return late, -rate, 0.0

    def _limiting_ms(self, row: DeploymentRecord) -> float:
        whole = self.experiments[0].question.request_latency_ms is not None
        return row.request_latency_ms if whole else row.tpot_ms

    def _of(self, serving_mode: str, model: str | None) -> list[ExperimentResult]:
        wanted = model if model is not None or not self.models else self.models[0]
        return [
            e
            for e in self.experiments
            if e.question.serving_mode == serving_mode and e.question.model == wanted
        ]

    def as_dict(self) -> dict[str, Any]:
        """Everything but the arrays, ready for JSON."""
        return {
            "chosen": {
                model: _plain(record) if (record := self.chosen_for(model)) else None
                for model in self.models
            },
            "best": {
                model: {
                    mode: [_plain(row) for row in self.best(mode, model)]
                    for mode in SERVING_MODES
                }
                for model in self.models
            },
            "pareto": {
                model: {
                    mode: [_plain(row) for row in self.pareto(mode, model)]
                    for mode in SERVING_MODES
                }
                for model in self.models
            },
            "experiments": {e.name: _experiment_dict(e) for e in self.experiments},
            "failures": dict(self.failures),
            "counts": self.counts,
        }

    def to_csv(self, which: str = "best") -> str:
        """One line per deployment of `best` or `pareto`, all models and modes."""
        rows = [
            row
            for model in self.models
            for mode in SERVING_MODES
            for row in (self.best if which == "best" else self.pareto)(mode, model)
        ]
        return records_csv(rows)


def _total(experiments: Iterable[ExperimentResult]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for experiment in experiments:
        total.update(experiment.counts)
    return dict(total)


def _plain(record: DeploymentRecord) -> dict[str, Any]:
    return {**asdict(record), "gpus_used": record.gpus_used}


def _experiment_dict(experiment: ExperimentResult) -> dict[str, Any]:
    failure = experiment.failure
    return {
        "failure": None if failure is None else failure.sentence,
        "cause": None if failure is None else failure.cause,
        "evaluated": experiment.evaluation.evaluated,
        "candidates": experiment.ranked.candidates.size,
        "counts": experiment.counts,
        "meets_targets": not experiment.ranked.ranking.exceeds,
        "search_space": experiment.search_space(),
    }


def records_csv(rows: Sequence[DeploymentRecord]) -> str:
    """Deployments as CSV; worker fields carry the role as a prefix."""
    lines = []
    for row in rows:
        plain = _plain(row)
        plain.pop("workers")
        for worker in row.workers:
            plain |= {f"{worker.role}_{k}": v for k, v in asdict(worker).items()}
        lines.append(plain)
    names = list(dict.fromkeys(name for line in lines for name in line))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()
