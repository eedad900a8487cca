"""From a recommendation and one choice of values to a concrete prediction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from ._domains import expand
from ._prediction import PredictionConfig
from ._problems import ConfigError, config_error
from ._recommendation import RecommendationConfig
from ._record import Record
from ._resolve import resolve_prediction
from ._saving import plain
from ._search_space import MODE_ROLES, search_domains
from ._worker_section import ROLES


CONCURRENCY = "traffic.load.concurrency"


def materialize(
    config: RecommendationConfig, choices: Mapping[str, Any]
) -> PredictionConfig:
    """The prediction of one candidate.

    `choices` gives a value per dotted path: `engine.mode`, `engine.backend`, the paths of
    `search_domains`, and `engine.workers.ROLE.parallelism` as a mapping of sizes. Fields
    with a single value may be left out. A load that is a fraction of the KV capacity
    needs `traffic.load.concurrency`, which depends on the candidate.
    """
    mode = _one(config.engine.mode, choices, "engine.mode")
    backend = _one(config.engine.backend, choices, "engine.backend")
    document = plain(config)
    for section in ("optimization", "optimizer"):
        document.pop(section, None)
    engine = document["engine"]
    engine |= {"mode": mode, "backend": backend}
    if engine["hardware"] == "auto":
        engine["hardware"] = config.optimization.hardware
    if isinstance(config.engine.backend_version, dict):
        engine["backend_version"] = config.engine.backend_version.get(backend)
    if mode == "aggregated":
        engine.pop("kv_transfer", None)
    for role in ROLES:
        if role not in MODE_ROLES[mode]:
            engine["workers"].pop(role, None)
        else:
            engine["workers"][role]["parallelism"] = _shape(choices, role)
    for path, values in search_domains(config, mode, backend).items():
        _place(document, path, _single(values, choices, path))
    if document["traffic"]["load"]["type"] == "kv_capacity_fraction":
        count = _single((), choices, CONCURRENCY)
        document["traffic"]["load"] = {"type": "concurrency", "concurrency": count}
    try:
        prediction = PredictionConfig.model_validate(document)
    except ValidationError as error:
        raise config_error(error, document, PredictionConfig) from None
    return resolve_prediction(prediction)


def _shape(choices: Mapping[str, Any], role: str) -> dict[str, Any]:
    value = _single((), choices, f"engine.workers.{role}.parallelism")
    return plain(value) if isinstance(value, Record) else dict(value)


def _one(domain: Any, choices: Mapping[str, Any], path: str) -> Any:
    return _single(expand(domain), choices, path)


def _single(values: tuple[Any, ...], choices: Mapping[str, Any], path: str) -> Any:
    if path in choices:
        return choices[path]
    if len(values) == 1:
        return values[0]
    raise ConfigError(
        "open_domain",
        path,
        f"{path}: a candidate needs one value; choose among {list(values)}."
        if values
        else f"{path}: a candidate needs a value; choose one.",
    )


def _place(document: dict[str, Any], path: str, value: Any) -> None:
    *parents, name = path.split(".")
    here = document
    for parent in parents:
        here = here.setdefault(parent, {})
    here[name] = value
