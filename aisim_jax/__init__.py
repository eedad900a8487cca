"""Price, size and choose LLM serving deployments, every candidate in one batched call.

Importing this package imports no jax; names load on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from ._errors import AisimError as AisimError
    from ._precision import precision as precision


__version__ = "0.1.0"

_HOMES = {
    "AisimError": "._errors",
    "precision": "._precision",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
