"""What besides KV occupies a rank: activation rates, communication, fixed overhead."""

from __future__ import annotations

from dataclasses import dataclass

from aisim_jax._errors import UnsupportedError
from aisim_jax.models import Layout, ModelSpec
from aisim_jax.systems import SystemSpec

from ._constants import EngineMemory, MemoryConstants


_LARGEST_WIDTH_KEY = 8
_WIDTH_COLUMN = {1: 0, 2: 1, 4: 2, 8: 3}


@dataclass(frozen=True, slots=True)
class ActivationRate:
    """Activation peak per token of a forward pass, in bytes.

    hidden: 2 * heads * head_dim * copies alive, bf16
    workspace: routed-expert buffers, 0 for families without
    """

    hidden: float
    workspace: float


def activation_rate(
    spec: ModelSpec, layout: Layout, backend: str, constants: MemoryConstants
) -> ActivationRate:
    """Return the per-token activation peak of one rank.

    hidden = 2 * heads * head_dim * copies[family, min(tp, 8)]; workspace = width * dp
    * experts * topk / moe_ep / tile * bytes, width = heads * head_dim or hidden.
    """
    engine = constants.engines[backend]
    copies = engine.activation_widths.get(spec.family, engine.default_activation_widths)
    attention_width = spec.heads * spec.head_dim
    hidden = 2 * attention_width * copies[_WIDTH_COLUMN[_width_key(layout.tp)]]
    if spec.family not in constants.workspace_families or not spec.is_moe:
        return ActivationRate(hidden, 0.0)
    width = spec.hidden if engine.workspace_of_hidden else attention_width
    slots = layout.dp * spec.experts * spec.topk / layout.moe_ep
    workspace = width * slots / constants.workspace_tile * constants.workspace_bytes
    return ActivationRate(hidden, workspace)


def nccl_bytes(system: SystemSpec, tp: int) -> int:
    """Return what the communicators of a `tp`-wide group hold on each rank."""
    return system.nccl_mem_bytes[_width_key(tp)]


def other_bytes(system: SystemSpec, engine: EngineMemory) -> float:
    """Return the engine's fixed overhead on each rank."""
    return system.other_mem_bytes * engine.other_scale


def _width_key(tp: int) -> int:
    key = min(tp, _LARGEST_WIDTH_KEY)
    if key not in _WIDTH_COLUMN:
        raise UnsupportedError(
            f"tp_size={tp} has no memory figures; use 1, 2, 4 or a multiple of 8"
        )
    return key
