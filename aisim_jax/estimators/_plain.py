"""Plain-float stand-in for an array namespace: the shared formulas without arrays."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any


PLAIN: Any = SimpleNamespace(
    maximum=max,
    minimum=min,
    floor=math.floor,
    ceil=math.ceil,
    where=lambda condition, yes, no: yes if condition else no,
)
