"""Checks that the precision sections of checkpoint files have the expected shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._errors import InvalidInputError


_PATTERN_LISTS = ("modules_to_not_convert", "exclude_modules", "ignore")


def check_quantization_shape(section: object, where: str) -> None:
    """Raise if `section` (quantization_config, or quantization of ModelOpt) is unusable.

    where: file and field, for the message
    """
    fields = _mapping(section, where)
    for name in _PATTERN_LISTS:
        if fields.get(name) is not None and not isinstance(fields[name], list):
            raise _wrong(f"{where}.{name}", fields[name], "a list of module names")
    for name in ("config_groups", "quantized_layers"):
        for key, entry in _mapping(fields.get(name), f"{where}.{name}").items():
            parts = _mapping(entry, f"{where}.{name}.{key}")
            for part in ("weights", "input_activations"):
                _mapping(parts.get(part), f"{where}.{name}.{key}.{part}")
    block = fields.get("weight_block_size")
    if block is not None and not _is_block(block):
        raise _wrong(f"{where}.weight_block_size", block, "a list of positive integers")


def _mapping(value: object, where: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _wrong(where, value, "a mapping of fields")
    return value


def _is_block(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) > 0
        and all(type(edge) is int and edge > 0 for edge in value)
    )


def _wrong(where: str, value: object, expected: str) -> InvalidInputError:
    return InvalidInputError(
        f"{where} is {value!r}, but must be {expected}; restore it from the checkpoint."
    )
