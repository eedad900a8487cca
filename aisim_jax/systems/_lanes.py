"""Which attention kernel ("lane") serves a query first.

An order is: the pinned lane (the user's attention backend, then the framework's own
default), the version's own lanes densest first, the generic kernels (measured ones
densest first, the others by name), "default", then the remaining lanes that are present
only through data shared from other versions, densest first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._errors import UnsupportedError
from ._blocks import Block


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
    """Own lanes and shared-only lanes, each densest first (slices, rows, then name)."""
    own: dict[str, list[int]] = {}
    shared: dict[str, list[int]] = {}
    for block in blocks:
        measured = ~np.isnan(block.latency_ms)
        for counts, points in (
            (own, measured & (block.origin == 0)),
            (shared, measured),
        ):
            rows = int(np.count_nonzero(points))
            if rows:
                tally = counts.setdefault(str(block.key[0]), [0, 0])
                tally[0] += 1
                tally[1] += rows
    only_shared = {lane: tally for lane, tally in shared.items() if lane not in own}
    return {"own": _densest_first(own), "shared": _densest_first(only_shared)}


def _densest_first(counts: Mapping[str, Sequence[int]]) -> list[str]:
    return sorted(counts, key=lambda lane: (-counts[lane][0], -counts[lane][1], lane))


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
    census = lanes[phase]
    chosen = _chosen_lanes(backend, attention_backend)
    measured = [*census["own"], *census["shared"]]
    if chosen and not set(chosen) & set(measured):
        raise UnsupportedError(
            f"attention_backend {attention_backend!r} has no {phase} attention "
            f"measurements here; measured kernels are {', '.join(measured) or 'none'}"
        )
    if framework is None and not chosen:
        return ("default",)
    pinned = [*chosen, *([] if framework in (None, "default") else [framework])]
    generic = [lane for lane in census["shared"] if lane in GENERIC_LANES]
    generic += GENERIC_LANES
    order = [*pinned, *census["own"], *generic, "default", *census["shared"]]
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
