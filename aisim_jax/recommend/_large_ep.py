"""Expert parallelism beyond one node: what is measured, and which layouts would use it.

Wide expert groups exchange tokens all to all. Their prices are not built; layouts that
would use them are set aside with a sentence instead of being priced as something else.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from aisim_jax._errors import UnsupportedError
from aisim_jax.models import Layout, ModelSpec

from ._layouts import Role


# Observed, except vllm's 8: no shape asked about was covered below one node there, so
# its lower end is assumed. These sizes only decide which layouts are set aside.
_SMALLEST = {
    "trtllm": {"agg": 2, "prefill": 4, "decode": 4},
    "sglang": {"agg": 8, "prefill": 8, "decode": 8},
    "vllm": {"agg": 8, "prefill": 8, "decode": 8},
}
_LARGEST_PREFILL = {"trtllm": 32, "sglang": 32, "vllm": 256}


@cache
def _coverage() -> tuple[dict[str, Any], ...]:
    text = files("aisim_jax.profiles").joinpath("large_ep.json").read_text()
    return tuple(json.loads(text)["coverage"])


def large_ep_sizes(
    spec: ModelSpec, moe_quant: str, system: str, backend: str, role: Role
) -> tuple[int, ...]:
    """Expert-parallel sizes (powers of two) with all-to-all measurements; often none."""
    shape = {"hidden": spec.hidden, "topk": spec.topk, "experts": spec.experts}
    wanted = {**shape, "backend": backend, "moe": moe_quant}
    for fact in _coverage():
        if (
            wanted.items() <= fact.items()
            and system in fact["systems"]
            and role in fact["roles"]
        ):
            largest = fact["largest"]
            if role == "prefill":
                largest = min(largest, _LARGEST_PREFILL[backend])
            powers = (2**exponent for exponent in range(1, 9))
            return tuple(n for n in powers if _SMALLEST[backend][role] <= n <= largest)
    return ()


def refuse_large_ep(
    layout: Layout, backend: str, node_gpus: int, covered: tuple[int, ...]
) -> UnsupportedError | None:
    """Why a layout is set aside, None where ordinary collectives serve it.

    `covered`: sizes that the sweep would serve all to all even within a node; pass ()
    to keep those layouts on ordinary collectives.
    """
    if layout.moe_tp > 1 or layout.moe_ep == 1:
        return None
    wide = layout.moe_ep > node_gpus
    within = layout.moe_ep in covered and (backend != "trtllm" or layout.dp > 1)
    if not (wide or within):
        return None
    return UnsupportedError(
        f"{layout.label}: experts over moe_ep={layout.moe_ep} GPUs exchange tokens all to "
        f"all, which is not priced; use moe_ep <= {node_gpus} or moe_tp above 1"
    )
