"""`--set a.b.c=VALUE` on a raw document, before it is validated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from ._problems import ConfigError


def apply_overrides(
    document: Mapping[str, Any], overrides: Iterable[str], refused: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The document with every `path=value` set, left to right.

    A value is read as YAML; missing mappings are made. Paths under a `refused` section
    are errors.

    >>> apply_overrides({"engine": {"model": "m"}}, ["engine.workers.aggregated={}"])
    {'engine': {'model': 'm', 'workers': {'aggregated': {}}}}
    """
    result = dict(document)
    for override in overrides:
        path, equals, text = override.partition("=")
        if not equals:
            raise _error("set_form", "", f"--set {override!r}: write it as path=value.")
        parts = path.strip().split(".")
        if parts[0] in refused:
            raise _error(
                "set_section",
                path,
                f"--set {path}: {parts[0]} belongs to a recommendation; a prediction has "
                "no such section.",
            )
        result = _set(result, parts, _value(path, text), path)
    return result


def _value(path: str, text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        line = " ".join(str(error).split())
        raise _error(
            "set_value", path, f"--set {path}: not valid YAML: {line}."
        ) from None


def _set(here: Any, parts: list[str], value: Any, path: str) -> dict[str, Any]:
    name, *rest = parts
    if not name.strip():
        raise _error("set_path", path, f"--set {path!r}: a part of the path is empty.")
    if name.isdigit():
        raise _error(
            "set_path",
            path,
            f"--set {path}: sequence indexes are unsupported; set the whole list.",
        )
    if not isinstance(here, Mapping):
        raise _error(
            "set_crosses_value",
            path,
            f"--set {path}: {name!r} lies under {here!r}, which is not a mapping; set the "
            "whole block.",
        )
    if not rest:
        return {**here, name: value}
    inner = here.get(name)
    return {**here, name: _set({} if inner is None else inner, rest, value, path)}


def _error(code: str, path: str, sentence: str) -> ConfigError:
    return ConfigError(code, path, sentence)
