"""A prediction as files: prediction.json and, when captured, requests.jsonl."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from aisim_jax._output_folder import publish
from aisim_jax.replay import Prediction


PREDICTION_FILES = ("requests.jsonl", "prediction.json")


def prediction_json(prediction: Prediction, *, indent: int | None = None) -> str:
    """The report as one mapping with sorted keys; compact, on one line, without indent."""
    separators = (",", ":") if indent is None else None
    return json.dumps(
        prediction.report,
        sort_keys=True,
        indent=indent,
        separators=separators,
        allow_nan=False,
    )


def write_prediction(prediction: Prediction, folder: Path) -> list[Path]:
    """Write the result files; those of an earlier run are replaced."""
    files: dict[str, Iterable[str]] = {}
    if prediction.captured:
        files["requests.jsonl"] = (line + "\n" for line in prediction.request_lines())
    files["prediction.json"] = (prediction_json(prediction, indent=2), "\n")
    return publish(folder, files, PREDICTION_FILES)
