"""From anything that a person writes to the one canonical record."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ._forward_pass import ForwardPassConfig
from ._problems import ConfigError, config_error


PACKAGED_ROOT = "default"


def normalize_config(
    config: Mapping[str, Any] | ForwardPassConfig,
) -> ForwardPassConfig:
    """The validated record with every default filled in; opens no data.

    Data roots become absolute, in order, without repeats; the packaged root stays the
    word `default`, so that a saved record works on another machine.

    >>> record = normalize_config(
    ...     {"model": "Qwen/Qwen3-32B", "system": "h200_sxm", "backend": "vllm",
    ...      "worker_type": "aggregated", "tp_size": 2}
    ... )
    >>> record.tp, record.systems_paths
    (2, ('default',))
    """
    record = config if isinstance(config, ForwardPassConfig) else _parse(config)
    interpolation = record.estimator_config.fpm_interpolation
    estimator = record.estimator_config
    if interpolation.method == "auto":
        pinned = interpolation.model_copy(update={"method": "sol"})
        estimator = estimator.model_copy(update={"fpm_interpolation": pinned})
    return record.model_copy(
        update={"systems_paths": _roots(record), "estimator_config": estimator}
    )


def _parse(config: Mapping[str, Any]) -> ForwardPassConfig:
    if not isinstance(config, Mapping):
        raise ConfigError(
            "wrong_type",
            "",
            f"A configuration is a mapping of fields, got {type(config).__name__}.",
        )
    try:
        return ForwardPassConfig.model_validate(dict(config))
    except ValidationError as error:
        raise config_error(error, config, ForwardPassConfig) from None


def _roots(record: ForwardPassConfig) -> tuple[str, ...]:
    """Data roots; the two data-free estimators keep an empty list."""
    data_free = record.estimation_mode in ("fpm_regression", "fpm_learned")
    if not record.systems_paths:
        return () if data_free else (PACKAGED_ROOT,)
    roots = [
        _root(path, f"systems_paths[{place}]")
        for place, path in enumerate(record.systems_paths)
    ]
    return tuple(dict.fromkeys(roots))


def _root(path: str, place: str) -> str:
    if path.lower() == PACKAGED_ROOT:
        return PACKAGED_ROOT
    root = Path(path).expanduser().absolute()
    if not root.is_dir():
        raise ConfigError(
            "systems_path_missing",
            place,
            f"{place}: no directory {str(root)!r}; give an existing data root or "
            f"{PACKAGED_ROOT!r}.",
        )
    return str(root)
