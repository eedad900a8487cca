"""A finished search as files: recommendation.json, recommendation.csv, one YAML each."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from aisim_jax import __version__
from aisim_jax._output_folder import publish
from aisim_jax.config import RecommendationConfig, plain

from ._canonical import compact, fingerprint, finite
from ._records import Candidate, Dropped, Outcome, Recommendation, RoleSetting


SCHEMA_VERSION = "1.1"
RESULT, TABLE, FOLDER = "recommendation.json", "recommendation.csv", "recommendations"
STATUSES = (
    "feasible",
    "infeasible",
    "unsupported",
    "timed_out",
    "failed",
    "resource_limited",
)
COLUMNS = (
    "schema_version",
    "candidate_id",
    "status",
    "reason_category",
    "reason",
    "used_gpus",
    "score",
    "power_w",
    "power_coverage",
    "power_source",
    "config_json",
    "prediction_config_json",
    "metrics_json",
    "objectives_json",
    "provenance_json",
    "is_top_n",
    "is_pareto",
)
ROLE_PREFIX = {"aggregated": "agg", "prefill": "prefill", "decode": "decode"}
MODE_NAMES = {"aggregated": "agg", "disaggregated": "disagg"}

_Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def candidate_ids(answer: Recommendation) -> list[str]:
    """One name per outcome, in their order."""
    return [f"candidate-{number:06d}" for number in range(1, len(answer.outcomes) + 1)]


def flat_settings(candidate: Candidate) -> dict[str, Any]:
    """The candidate as one flat mapping of engine terms."""
    branch = candidate.branch
    flat: dict[str, Any] = {
        "backend": branch.backend,
        "backend_version": branch.version,
        "deployment_mode": MODE_NAMES[branch.mode],
    }
    for role, setting in candidate.roles.items():
        flat |= _flat_role(ROLE_PREFIX[role], setting)
    load = dict(candidate.prediction["traffic"]["load"])
    load.pop("type")
    flat |= {name: value for name, value in load.items() if value is not None}
    if candidate.kv_load_ratio is not None:
        flat["kv_load_ratio"] = candidate.kv_load_ratio
    return flat


def _flat_role(prefix: str, setting: RoleSetting) -> dict[str, Any]:
    layout = setting.shape.layout
    sizes = {
        "replicas": setting.shape.replicas,
        "tp": layout.tp,
        "pp": layout.pp,
        "attention_dp": layout.dp,
        "moe_tp": layout.moe_tp,
        "moe_ep": layout.moe_ep,
    }
    if prefix != "agg":
        sizes = {f"{prefix}_{name}": size for name, size in sizes.items()}
    return {
        **sizes,
        f"{prefix}_max_num_batched_tokens": setting.knobs.max_batched_tokens,
        f"{prefix}_max_num_seqs": setting.knobs.max_sequences,
        f"{prefix}_block_size": setting.knobs.block_size,
        f"{prefix}_gpu_memory_utilization": setting.knobs.memory_fraction,
    }


def recommendation_record(
    answer: Recommendation, question: Mapping[str, Any]
) -> dict[str, Any]:
    """The whole answer as plain data; `question` is the configuration that was asked."""
    ids = candidate_ids(answer)
    top = [name for name, one in zip(ids, answer.outcomes, strict=True) if one.feasible]
    front = None if answer.front is None else [ids[place] for place in answer.front]
    return {
        "schema_version": SCHEMA_VERSION,
        "complete": not answer.interrupted,
        "candidate_retention": "all",
        "counts": counts(answer),
        "coverage": answer.coverage._asdict(),
        "dropped": [_dropped(one) for one in answer.dropped],
        "candidates": [
            _candidate(name, one)
            for name, one in zip(ids, answer.outcomes, strict=True)
        ],
        "views": {"top_n": top if front is None else None, "pareto_front": front},
        "closest": None if answer.closest is None else ids[answer.closest],
        "notes": list(answer.notes),
        "provenance": {
            "search_strategy": "exhaustive"
            if not (answer.coverage.left or answer.coverage.screened_out)
            else "screened",
            "implementation": "aisim_jax",
            "version": __version__,
            "input_fingerprint": fingerprint(question),
            "config": question,
        },
    }


def counts(answer: Recommendation) -> dict[str, int]:
    """Replayed candidates by status; dropped ones are counted under `dropped`."""
    found: dict[str, int] = dict.fromkeys(STATUSES, 0)
    for one in answer.outcomes:
        found[one.verdict.status] += 1
    return {
        "evaluated": len(answer.outcomes),
        **found,
        "cache_hits": answer.coverage.stood_for - answer.coverage.replayed,
    }


def _candidate(name: str, outcome: Outcome) -> dict[str, Any]:
    candidate, verdict = outcome.candidate, outcome.verdict
    return {
        "candidate_id": name,
        "status": verdict.status,
        "config": flat_settings(candidate),
        "prediction_config": candidate.prediction,
        "used_gpus": candidate.used_gpus,
        "stands_for": candidate.stands_for,
        "score": verdict.score,
        "metrics": outcome.metrics,
        "objectives": verdict.objectives,
        "reason_category": verdict.reason_category,
        "reason": verdict.reason,
        "provenance": candidate.provenance,
    }


def _dropped(group: Dropped) -> dict[str, Any]:
    shape = group.shape
    return {
        "status": group.status,
        "reason_category": group.reason_category,
        "reason": group.reason,
        "branch": None if group.branch is None else group.branch._asdict(),
        "role": group.role,
        "shape": None
        if shape is None
        else {"replicas": shape.replicas, "layout": shape.layout.label},
        "candidates": group.candidates,
    }


def recommendation_csv(answer: Recommendation) -> str:
    """One row a candidate; nested values as JSON text."""
    stream = io.StringIO()
    table = csv.writer(stream, lineterminator="\n")
    table.writerow(COLUMNS)
    front = set(answer.front or ())
    for place, (name, outcome) in enumerate(
        zip(candidate_ids(answer), answer.outcomes, strict=True)
    ):
        row = _candidate(name, outcome)
        table.writerow(
            [
                SCHEMA_VERSION,
                *(row[name] for name in COLUMNS[1:7]),
                *("", "", ""),
                *(
                    compact(finite(row[name.removesuffix("_json")]))
                    for name in COLUMNS[10:15]
                ),
                outcome.feasible and answer.front is None,
                place in front,
            ]
        )
    return stream.getvalue()


def prediction_yaml(candidate: Candidate) -> str:
    """The file that `aisim predict -c` takes."""
    return yaml.dump(
        candidate.prediction, Dumper=_Dumper, sort_keys=False, allow_unicode=True
    )


def yaml_names(chosen: Sequence[Outcome]) -> list[str]:
    """Where each recommended prediction is written, below the output folder."""
    return [f"{FOLDER}/{rank:04d}.yaml" for rank in range(1, len(chosen) + 1)]


def ranking_records(answer: Recommendation, folder: Path) -> list[dict[str, Any]]:
    """The ranking as plain data, with the path of every file."""
    names = yaml_names(answer.chosen)
    return [
        {
            "rank": rank,
            "score": outcome.verdict.score,
            "objectives": outcome.verdict.objectives,
            "used_gpus": outcome.candidate.used_gpus,
            "config_path": str(folder / name),
            "power_w": None,
            "power_coverage": None,
        }
        for rank, (name, outcome) in enumerate(
            zip(names, answer.chosen, strict=True), start=1
        )
    ]


def write_recommendation(
    answer: Recommendation, config: RecommendationConfig, folder: Path
) -> list[Path]:
    """Write all result files; those of an earlier search are replaced."""
    question = plain(config)
    chosen = answer.chosen
    files: dict[str, Iterable[str]] = {
        name: (prediction_yaml(outcome.candidate),)
        for name, outcome in zip(yaml_names(chosen), chosen, strict=True)
    }
    record = finite(recommendation_record(answer, question))
    files[TABLE] = (recommendation_csv(answer),)
    files[RESULT] = (json.dumps(record, indent=2, allow_nan=False), "\n")
    return publish(folder, files, known_files(folder))


def known_files(folder: Path) -> list[str]:
    """Result files of an earlier search in `folder`."""
    old = (folder / FOLDER).glob("[0-9][0-9][0-9][0-9]*.yaml")
    return [RESULT, TABLE, *(f"{FOLDER}/{path.name}" for path in old)]
