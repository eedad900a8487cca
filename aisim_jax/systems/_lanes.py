"""Which attention kernel ("lane") serves a query first.

An order is: the pinned lane (the user's attention backend, then the framework's own
default), the version's own lanes densest first, the generic kernels, "default", then
lanes that are present only through data shared from other versions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._errors import UnsupportedError
from ._blocks import Block


PHASES = ("context", "generation")
GENERIC_LANES = ("fa3", "fla", "flashinfer", "triton", "trtllm_mha")
# Kernels that a user may pin, by backend: the name a person writes -> lanes.
PINNED_LANES: dict[str, dict[str, tuple[str, ...]]] = {
    "sglang": {name: (name,) for name in GENERIC_LANES},
    "trtllm": {},
    "vllm": {
        "flashinfer": (
            "vllm_flashinfer_trtllmprefill",
            "vllm_flashinfer_trtllmdecode",
            "vllm_flashinfer",
        ),
        "triton": ("vllm_triton_attn",),
    },
}


def lane_census(blocks: Sequence[Block]) -> dict[str, list[str]]:
    """Own lanes, densest first (slices, then rows, then name), and shared-only lanes."""
    slices: dict[str, int] = {}
    rows: dict[str, int] = {}
    shared: list[str] = []
    for block in blocks:
        lane = str(block.key[0])
        own = int(np.count_nonzero(~np.isnan(block.latency_ms) & (block.origin == 0)))
        if own:
            slices[lane] = slices.get(lane, 0) + 1
            rows[lane] = rows.get(lane, 0) + own
        elif lane not in shared:
            shared.append(lane)
    own_lanes = sorted(slices, key=lambda lane: (-slices[lane], -rows[lane], lane))
    return {"own": own_lanes, "shared": [x for x in shared if x not in slices]}


def lane_order(
    backend: str,
    lanes: Mapping[str, Any],
    phase: str,
    attention_backend: str | None = None,
    architecture: str | None = None,
) -> tuple[str, ...]:
    """Lanes in the order in which they serve, from an archive's `lanes` metadata.

    `lanes` holds "default" (the framework's kernel, None when unknown),
    "architectures" (kernel by model architecture) and a census per phase. Without a
    framework default and without a choice of the user the order is ("default",): the
    order of the table.
    """
    framework = lanes["architectures"].get(architecture) or lanes["default"]
    chosen = _chosen_lanes(backend, attention_backend)
    if framework is None and not chosen:
        return ("default",)
    pinned = [*chosen, *([] if framework in (None, "default") else [framework])]
    census = lanes[phase]
    order = [*pinned, *census["own"], *GENERIC_LANES, "default", *census["shared"]]
    return tuple(dict.fromkeys(order))


def _chosen_lanes(backend: str, attention_backend: str | None) -> tuple[str, ...]:
    if attention_backend is None or attention_backend == "default":
        return ()
    choices = PINNED_LANES.get(backend, {})
    if attention_backend not in choices:
        names = ", ".join([*choices, "default"])
        raise UnsupportedError(
            f"attention_backend {attention_backend!r} is not measured for {backend}; "
            f"use one of {names}"
        )
    return choices[attention_backend]
