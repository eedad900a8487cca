"""From a file or mapping to a validated prediction or recommendation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from ._documents import read_document
from ._overrides import apply_overrides
from ._prediction import PredictionConfig
from ._problems import ConfigError, config_error
from ._recommendation import RecommendationConfig
from ._record import Record
from ._resolve import resolve_prediction


R = TypeVar("R", bound=Record)
SEARCH_SECTIONS = ("optimization", "optimizer")
OTHER_STACKS = ("planner", "router")


def load_prediction(
    source: str | Path | Mapping[str, Any], overrides: Iterable[str] = ()
) -> PredictionConfig:
    """The validated prediction of a file, JSON text or mapping, defaults resolved.

    `overrides` are `path=value` texts, set from left to right before validation.

    >>> config = load_prediction(
    ...     {"engine": {"model": "Qwen/Qwen3-32B", "hardware": "h200_sxm",
    ...                 "workers": {"aggregated": {}}}},
    ...     ["engine.workers.aggregated.parallelism.tensor=2"],
    ... )
    >>> config.engine.workers.aggregated.parallelism.tensor
    2
    """
    document = apply_overrides(_document(source), overrides, SEARCH_SECTIONS)
    for name in SEARCH_SECTIONS:
        if name in document:
            raise ConfigError(
                "foreign_section",
                name,
                f"{name}: this section belongs to a recommendation; run `aisim recommend` "
                "or remove it.",
            )
    return resolve_prediction(_validated(PredictionConfig, document))


def load_recommendation(
    source: str | Path | Mapping[str, Any], overrides: Iterable[str] = ()
) -> RecommendationConfig:
    """The validated recommendation of a file, JSON text or mapping.

    `overrides` are `path=value` texts, set from left to right before validation.
    """
    document = apply_overrides(_document(source), overrides)
    if "engine" in document and "optimization" not in document:
        raise ConfigError(
            "missing_field",
            "optimization",
            "optimization: this section is required and missing; add it, or run `aisim "
            "predict` for one deployment.",
        )
    return _validated(RecommendationConfig, document)


def locate_traces(paths: Iterable[str], beside: Path | None) -> tuple[Path, ...]:
    """Trace files: in the working directory, else next to the configuration file.

    `beside` is the folder of the configuration file, None for a mapping.
    """
    return tuple(_locate(path, beside) for path in paths)


def _locate(path: str, beside: Path | None) -> Path:
    given = Path(path).expanduser()
    if given.is_file():
        return given
    if beside is not None and (beside / given).is_file():
        return beside / given
    places = [str(given.absolute()), *([str(beside / given)] if beside else [])]
    raise ConfigError(
        "missing_trace",
        "traffic.source.paths",
        f"traffic.source.paths: no file {' or '.join(map(repr, places))}; check the path.",
    )


def _document(source: str | Path | Mapping[str, Any]) -> Mapping[str, Any]:
    return source if isinstance(source, Mapping) else read_document(source)


def _validated(model: type[R], document: Mapping[str, Any]) -> R:
    _check_sections(document, tuple(model.model_fields))
    try:
        return model.model_validate(dict(document))
    except ValidationError as error:
        raise config_error(error, document, model) from None


def _check_sections(document: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in (name for name in document if name not in known):
        if name in OTHER_STACKS:
            raise ConfigError(
                "other_stack",
                name,
                f"{name}: this section belongs to another stack than engine, which is "
                "not built yet; remove it.",
            )
        close = get_close_matches(str(name), known, n=1, cutoff=0.6)
        hint = f"did you mean {close[0]!r}? The" if close else "the"
        raise ConfigError(
            "unknown_section",
            str(name),
            f"{name}: unknown section; {hint} sections are {', '.join(known)}.",
        )
