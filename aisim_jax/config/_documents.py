"""Reading and writing configuration records as JSON or YAML."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from aisim_jax._errors import InvalidInputError

from ._forward_pass import ForwardPassConfig
from ._normalize import normalize_config


def load_config(source: str | Path) -> ForwardPassConfig:
    """Read a record from a file, or from JSON text that starts with `{`."""
    return normalize_config(read_document(source))


def read_document(source: str | Path) -> Mapping[str, Any]:
    """Parse a JSON or YAML mapping from a file, or from JSON text."""
    if isinstance(source, str) and source.lstrip().startswith("{"):
        return _mapping(source, "the text", as_json=True)
    path = Path(source).expanduser()
    if not path.is_file():
        raise InvalidInputError(f"No configuration file {str(path)!r}; check the path.")
    return _mapping(path.read_text(), f"{path}", as_json=path.suffix == ".json")


def _mapping(text: str, name: str, as_json: bool) -> Mapping[str, Any]:
    try:
        value = json.loads(text) if as_json else yaml.safe_load(text)
    except (json.JSONDecodeError, yaml.YAMLError) as error:
        line = " ".join(str(error).split())
        kind = "JSON" if as_json else "YAML"
        raise InvalidInputError(f"{name}: not valid {kind}: {line}.") from None
    if not isinstance(value, Mapping):
        raise InvalidInputError(
            f"{name}: a configuration is a mapping of fields, got "
            f"{type(value).__name__}."
        )
    return value


def config_record(config: ForwardPassConfig) -> dict[str, Any]:
    """The plain mapping that is written; absent fields hold their default."""
    return config.model_dump(mode="json")


def dump_config(config: ForwardPassConfig, format: str = "json") -> str:
    """Write a record; saving, reloading and saving again gives the same bytes.

    `format` is json or yaml.
    """
    record = config_record(config)
    if format == "json":
        return json.dumps(record, indent=2, allow_nan=False) + "\n"
    if format == "yaml":
        return yaml.safe_dump(record, sort_keys=False, allow_unicode=True)
    raise InvalidInputError(f"format {format!r} is not one of json, yaml.")
