"""Constants of the memory models: everything that differs between engines and modes.

A mode of truth is one `MemoryConstants` record; formulas read it and never branch on
its name. `COMPAT` holds the values of the reference product.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from aisim_jax._backends import Backend
from aisim_jax._units import MIB


FractionKind = Literal["of_free", "of_total"]

# (tp 1, tp 2, tp 4, tp 8 and more)
Widths = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """How one engine budgets device memory.

    name: of the engine
    fraction_kind: the memory fraction counts free memory (after loading) or the device
    charged_before, charged_after: fields of `RankLoads` subtracted before and after the
        fraction is applied; a load in neither is reported, not charged
    other_scale, activation_scale: factors on the system's fixed overhead and on the
        activation peak
    activation_floor_bytes: smallest activation peak, before `activation_scale`
    activation_widths: hidden-state copies alive at the peak, by model family
    workspace_of_hidden: expert workspace counts the hidden size instead of heads * dim
    default_fraction: serving fraction when none is given (newest versions)
    version_fractions: version prefix -> fraction that differs from the default
    application_fraction: fraction that the application layer fills in
    application_block_tokens: block size that the application layer fills in
    run_reserved_fraction: share of the pool that a running engine keeps back
    run_tokens: tokens of an aggregated step when the engine sizes for a fixed number
    derives_static_fraction: static workers derive the fraction from the device
    """

    name: Backend
    fraction_kind: FractionKind
    charged_before: tuple[str, ...]
    charged_after: tuple[str, ...]
    activation_widths: Mapping[str, Widths]
    default_activation_widths: Widths
    activation_floor_bytes: int
    default_fraction: float
    application_fraction: float
    application_block_tokens: int
    other_scale: float = 1.0
    activation_scale: float = 1.0
    workspace_of_hidden: bool = False
    version_fractions: Mapping[str, float] = field(
        default_factory=lambda: MappingProxyType({})
    )
    run_reserved_fraction: float = 0.0
    run_tokens: int | None = None
    derives_static_fraction: bool = False


@dataclass(frozen=True, slots=True)
class MemoryConstants:
    """One mode of truth.

    workspace_families: families whose experts need a workspace of
        workspace_bytes / workspace_tile * experts * topk / moe_ep * dp * width a token
    run_tolerance: safety margin of the KV verdict of a run
    """

    name: str
    engines: Mapping[str, EngineMemory]
    workspace_families: frozenset[str]
    workspace_bytes: int
    workspace_tile: int
    run_tolerance: float


_EVERY_LOAD = ("weights", "activations", "other", "nccl", "reserved", "graphs")
_DENSE: Widths = (11.0, 6.5, 5.0, 5.0)
_EXPERTS: Widths = (22.0, 13.0, 10.0, 10.0)
_PLAIN: Widths = (10.0, 6.0, 5.0, 5.0)
_SGLANG_DENSE: Widths = (14.0, 8.5, 6.5, 6.5)
_SGLANG_EXPERTS: Widths = (28.0, 17.0, 13.0, 13.0)
_SGLANG_PLAIN: Widths = (13.0, 8.0, 6.5, 6.5)


def _by_family(dense: Widths, experts: Widths) -> Mapping[str, Widths]:
    return MappingProxyType(
        {"LLAMA": dense, "MOE": experts, "DEEPSEEK": experts, "KIMIK25": experts}
    )


COMPAT = MemoryConstants(
    name="compat",
    engines=MappingProxyType(
        {
            "trtllm": EngineMemory(
                name="trtllm",
                fraction_kind="of_free",
                charged_before=_EVERY_LOAD,
                charged_after=(),
                activation_widths=_by_family(_DENSE, _EXPERTS),
                default_activation_widths=_PLAIN,
                activation_floor_bytes=70 * MIB,
                default_fraction=0.9,
                application_fraction=0.9,
                application_block_tokens=32,
                run_reserved_fraction=0.015,
                run_tokens=8192,
            ),
            "vllm": EngineMemory(
                name="vllm",
                fraction_kind="of_total",
                charged_before=(),
                charged_after=_EVERY_LOAD,
                activation_widths=_by_family(_DENSE, _EXPERTS),
                default_activation_widths=_PLAIN,
                activation_floor_bytes=70 * MIB,
                default_fraction=0.92,
                application_fraction=0.9,
                application_block_tokens=64,
                version_fractions=MappingProxyType({"0.14": 0.9, "0.19": 0.9}),
            ),
            "sglang": EngineMemory(
                name="sglang",
                fraction_kind="of_total",
                charged_before=("other", "nccl"),
                charged_after=("weights", "reserved", "graphs"),
                activation_widths=_by_family(_SGLANG_DENSE, _SGLANG_EXPERTS),
                default_activation_widths=_SGLANG_PLAIN,
                activation_floor_bytes=90 * MIB,
                default_fraction=0.88,
                application_fraction=0.88,
                application_block_tokens=1,
                other_scale=1.20,
                activation_scale=1.15,
                workspace_of_hidden=True,
                derives_static_fraction=True,
            ),
        }
    ),
    workspace_families=frozenset({"DEEPSEEK", "KIMIK25"}),
    workspace_bytes=4,
    workspace_tile=128,
    run_tolerance=0.02,
)
