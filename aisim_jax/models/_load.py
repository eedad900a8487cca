"""Name or path of a model -> its geometry."""

from __future__ import annotations

import functools
from pathlib import Path

from ._catalogue import canonical_name, catalogue
from ._config_json import parse_config, read_checkpoint
from ._spec import ModelSpec


def load_model(name_or_path: str) -> ModelSpec:
    """Geometry and precision facts of a model.

    name_or_path: a catalogue name (`model_names`), one of its variants, a local
        directory that holds config.json, or the path of a config.json. An existing
        path wins over a name.

    >>> load_model("meta-llama/Llama-3.1-8B-Instruct").layers
    32
    """
    path = Path(name_or_path).expanduser()
    if path.is_dir() or path.is_file() or path.suffix == ".json":
        return read_checkpoint(path)
    return _from_catalogue(canonical_name(name_or_path))


@functools.lru_cache(maxsize=256)
def _from_catalogue(name: str) -> ModelSpec:
    entry = catalogue()[name]
    # A re-release or re-quantisation states only what differs from its model.
    base = catalogue()[entry["like"]]["config"] if "like" in entry else {}
    return parse_config(
        {**base, **entry["config"]},
        entry.get("hf_quant"),
        name=name,
        where=f"catalogue entry {name}",
        source=entry["source"],
    )
