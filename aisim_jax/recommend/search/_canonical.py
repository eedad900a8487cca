"""One text for one value."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any


def compact(value: Any) -> str:
    """Canonical JSON: sorted keys, no spaces; every number has a value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def fingerprint(value: Any) -> str:
    """Identity of a value, `sha256:...`."""
    return "sha256:" + hashlib.sha256(compact(value).encode()).hexdigest()


def finite(value: Any) -> Any:
    """`value` with null for every number that JSON cannot write."""
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
