"""Sections of a report that are shown when asked for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from .._sections import SECTIONS
from ._deployment import Deployment
from ._outcome import Passes, Replayed
from ._resolved import Resolved
from ._telemetry import roles


LATENCIES = ("_ttft_ms", "_ttst_ms", "_tpot_ms", "_itl_ms", "_e2e_latency_ms")
QUEUE = "_queue_ms"
SOURCES = ("kv_cache_precision", "prediction_provenance")


def details(
    sections: Collection[str],
    report: Mapping[str, Any],
    replayed: Replayed,
    resolved: Resolved,
) -> dict[str, Any]:
    """The sections asked for, by name, in their fixed order."""
    deployment = resolved.deployment
    made = {
        "summary": lambda: {
            name: value
            for name, value in report.items()
            if not isinstance(value, Mapping | list)
        },
        "memory": lambda: pools(resolved),
        "time": lambda: (
            {
                name: value
                for name, value in report.items()
                if name.endswith((*LATENCIES, QUEUE))
            }
            | (
                {}
                if replayed.passes is None
                else pass_times(replayed.passes(), deployment)
            )
        ),
        "source": lambda: {
            **{name: report[name] for name in SOURCES if name in report},
            "engine": replayed.engine,
        },
    }
    return {name: made[name]() for name in SECTIONS if name in sections}


def pools(resolved: Resolved) -> dict[str, Any]:
    """The KV cache of one rank of each role, and where its memory goes.

    memory_estimate is null where the blocks were given.
    """
    found = {}
    for name, (_, role) in roles(resolved.deployment).items():
        capacity = resolved.roles[name].capacity
        found[name] = {
            "blocks": role.num_blocks,
            "block_size_tokens": role.block_size,
            "pool_tokens": role.num_blocks * role.block_size,
            "ranks": role.workers * role.ranks,
            "max_model_len_tokens": role.max_model_len,
            "memory_estimate": None if capacity is None else capacity.as_dict(),
        }
    return found


def pass_times(passes: Passes, deployment: Deployment) -> dict[str, Any]:
    """Passes of each role and their time, ms, by the work that they hold."""
    prefill, decode = passes.prefill_requests > 0, passes.decode_requests > 0
    kinds = {
        "prefill": prefill & ~decode,
        "decode": decode & ~prefill,
        "mixed": prefill & decode,
    }
    spent = passes.end_ms - passes.start_ms
    return {
        f"passes_{name}": {
            kind: {
                "passes": int(passes.passes[mask & (passes.pool == pool)].sum()),
                "time_ms": float(np.sum(spent[mask & (passes.pool == pool)])),
            }
            for kind, mask in kinds.items()
        }
        for name, (pool, _) in roles(deployment).items()
    }
