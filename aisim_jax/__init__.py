"""Price, size and choose LLM serving deployments, every candidate in one batched call.

Importing this package imports no jax; names load on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._lazy import lazy_names


if TYPE_CHECKING:
    from ._errors import AisimError as AisimError
    from ._errors import MeasurementWarning as MeasurementWarning
    from ._precision import precision as precision
    from .config import ForwardPassConfig as ForwardPassConfig
    from .config import normalize_config as normalize_config
    from .estimators import best_available as best_available
    from .memory import estimate_kv_cache as estimate_kv_cache
    from .memory import estimate_num_gpu_blocks as estimate_num_gpu_blocks
    from .recommend import estimate as estimate
    from .recommend import sweep as sweep
    from .recommend.search import recommend as recommend
    from .replay import predict as predict
    from .replay import replay as replay


__version__ = "0.1.0"

_HOMES = {
    "AisimError": "._errors",
    "ForwardPassConfig": ".config",
    "MeasurementWarning": "._errors",
    "best_available": ".estimators",
    "estimate": ".recommend",
    "estimate_kv_cache": ".memory",
    "estimate_num_gpu_blocks": ".memory",
    "normalize_config": ".config",
    "precision": "._precision",
    "predict": ".replay",
    "recommend": ".recommend",
    "replay": ".replay",
    "sweep": ".recommend",
}

__getattr__ = lazy_names(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
