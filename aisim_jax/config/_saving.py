"""The written form of a prediction: same record, same bytes, on any machine."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from aisim_jax._atomic import write_file

from ._estimator import EstimatorConfig
from ._prediction import PredictionConfig
from ._recommendation import RecommendationConfig
from ._record import Record


def plain(record: Record) -> dict[str, Any]:
    """The mapping that is written: values in a fixed order, without nulls.

    Every null of these records means that the field is absent. A field in `omitted` is
    left out while it holds its default.
    """
    written: dict[str, Any] = {}
    for name in type(record).model_fields:
        value = getattr(record, name)
        default = _default(type(record), name)
        if value is None or (name in record.omitted and value == default):
            continue
        item = _item(value)
        if item == {} and value == default:
            continue
        written[name] = item
    if "type" in written:
        return {"type": written.pop("type"), **written}
    return written


@cache
def _default(kind: type[Record], name: str) -> Any:
    """The default of a field; making one is a deep copy."""
    return kind.model_fields[name].get_default(call_default_factory=True)


def _item(value: Any) -> Any:
    if isinstance(value, EstimatorConfig):
        # Here a null is a value of its own: no limit.
        return value.model_dump(mode="json")
    if isinstance(value, Record):
        return plain(value)
    if isinstance(value, tuple):
        return [_item(item) for item in value]
    return value


def dump_prediction(config: PredictionConfig | RecommendationConfig) -> str:
    """The YAML text of a record; loading and dumping it again gives the same bytes."""
    return yaml.safe_dump(plain(config), sort_keys=False, allow_unicode=True)


def save_prediction(
    config: PredictionConfig | RecommendationConfig, path: str | Path
) -> None:
    """Write the YAML text of a record; the file appears complete or not at all."""
    write_file(Path(path), dump_prediction(config))
