"""Where the example prediction and recommendation files lie, and the base of cases."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

from goldens import COMPACT, FULL


PREDICTION: dict[str, Any] = {
    "traffic": {
        "source": {"type": "synthetic", "input_tokens": 64, "output_tokens": 4},
        "load": {"type": "concurrency", "concurrency": 2},
        "stop": {"requests": 2},
    },
    "engine": {
        "model": "meta-llama/Meta-Llama-3.1-8B",
        "hardware": "h100_sxm",
        "workers": {"aggregated": {}},
    },
}
RECOMMENDATION: dict[str, Any] = {
    **PREDICTION,
    "engine": {**PREDICTION["engine"], "mode": "aggregated", "backend": "vllm"},
    "optimization": {"target": "throughput"},
}


def example_files() -> list[Path]:
    """The prediction and recommendation examples."""
    full = FULL / "recommend" / "configs"
    folder = full if full.exists() else COMPACT / "recommend" / "configs"
    return sorted(path for path in folder.glob("*.yaml") if "_exp" not in path.name)


def changed(document: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A copy with values set by dotted path."""
    result = copy.deepcopy(document)
    for path, value in changes.items():
        *parents, name = path.split(".")
        here = result
        for parent in parents:
            here = here.setdefault(parent, {})
        here[name] = copy.deepcopy(value)
    return result


def at(record: Any, path: str) -> Any:
    """The value of a record at a dotted path."""
    return functools.reduce(getattr, path.split("."), record)
