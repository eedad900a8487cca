"""Golden figures: the full sets where they lie beside the checkout, else the compact
ones committed under tests/golden."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any


HERE = Path(__file__).resolve().parent
FULL = HERE.parent.parent / "shared" / "golden"
COMPACT = HERE / "golden"


def load_golden(name: str) -> Any:
    """Return the parsed figures `name`, e.g. "kv/capacity_cases.json"."""
    full = FULL / name
    if full.exists():
        return json.loads(full.read_text())
    with gzip.open(COMPACT / f"{name}.gz", "rt") as stream:
        return json.load(stream)
