"""Which figures belong to models whose memory is built, and their lowering."""

from __future__ import annotations

from functools import cache
from typing import Any

from aisim_jax.memory import RunMemory, run_memory
from aisim_jax.models import (
    BUILT_FAMILIES,
    Layout,
    load_model,
    model_names,
    resolve_precision,
)
from aisim_jax.systems import load_system


WINDOWED = ("GptOssForCausalLM",)


@cache
def is_built(model: str) -> bool:
    """Whether a model name is known and its KV cache is built."""
    if model not in model_names():
        return False
    spec = load_model(model)
    return spec.family in BUILT_FAMILIES and spec.architecture not in WINDOWED


def topology_layout(topology: dict[str, Any]) -> Layout:
    """Layout of a figure's topology; absent expert sizes are 1."""
    return Layout(
        tp=topology["tp"],
        pp=topology["pp"],
        dp=topology["attention_dp"],
        moe_tp=topology["moe_tp"] or 1,
        moe_ep=topology["moe_ep"] or 1,
    )


def lowered(
    model: str,
    system: str,
    backend: str,
    version: str,
    layouts: list[Layout],
    nextn: int = 0,
) -> RunMemory:
    """Run memory of a model with inferred precision."""
    spec = load_model(model)
    device = load_system(system)
    precision = resolve_precision(spec, backend, version, device.sm_version)
    return run_memory(spec, precision, layouts, backend, version, device, nextn=nextn)
