"""Which parallel layouts a model can run under; each rule is one sentence."""

from __future__ import annotations

from .._backends import BACKENDS
from .._errors import InvalidInputError, UnsupportedError
from ._families import BUILT_FAMILIES, GQA_MOE
from ._layout import Layout
from ._precision import Precision
from ._spec import ModelSpec


def check_layout(
    spec: ModelSpec, precision: Precision, layout: Layout, backend: str, nextn: int
) -> None:
    """Raise the first broken rule of `layout` for `spec`, if any."""
    if spec.family not in BUILT_FAMILIES:
        raise UnsupportedError(
            f"{spec.name}: operations of {spec.architecture} (family {spec.family}) are "
            f"not built; built families are {', '.join(sorted(BUILT_FAMILIES))}."
        )
    if backend not in BACKENDS:
        raise InvalidInputError(
            f"backend {backend!r} is not known; use one of {', '.join(BACKENDS)}."
        )
    for name in Layout.__slots__:
        value = getattr(layout, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InvalidInputError(
                f"parallel size {name} is {value!r}, but must be an integer of at least 1."
            )
    if isinstance(nextn, bool) or not isinstance(nextn, int) or nextn < 0:
        raise InvalidInputError(
            f"nextn is {nextn!r}, but must be a non-negative integer (0 = off)."
        )
    if spec.heads % layout.tp:
        raise InvalidInputError(
            f"{spec.name}: tp={layout.tp} does not divide {spec.heads} attention heads; "
            f"use tp of {_divisors(spec.heads)}."
        )
    if layout.cp > 1:
        _check_context_parallel(layout, backend)
    if spec.is_moe:
        _check_experts(spec, precision, layout)


def _check_context_parallel(layout: Layout, backend: str) -> None:
    if backend != "sglang":
        raise UnsupportedError(
            f"context parallelism (cp={layout.cp}) is not built for {backend}; use "
            "sglang or cp=1."
        )
    if layout.tp > 1 or layout.dp > 1:
        raise InvalidInputError(
            f"context parallelism (cp={layout.cp}) needs tp=1 and dp=1, not "
            f"tp={layout.tp} dp={layout.dp}."
        )


def _check_experts(spec: ModelSpec, precision: Precision, layout: Layout) -> None:
    attention = layout.tp * layout.dp * layout.cp
    expert = layout.moe_tp * layout.moe_ep
    if attention != expert:
        raise InvalidInputError(
            f"{spec.name}: tp*dp*cp = {attention} GPUs run attention but "
            f"moe_tp*moe_ep = {expert} run the experts; make both equal."
        )
    if spec.experts < layout.moe_ep:
        raise InvalidInputError(
            f"{spec.name}: moe_ep={layout.moe_ep} exceeds its {spec.experts} experts; "
            f"use moe_ep <= {spec.experts} and a larger moe_tp."
        )
    width = spec.moe_intermediate // layout.moe_tp
    tile = spec.checkpoint.block_width
    # MLA families are not held to the tile rule.
    if precision.moe == "fp8_block" and spec.family in GQA_MOE and width % tile:
        works = [
            size
            for size in range(1, layout.moe_tp)
            if expert % size == 0 and spec.moe_intermediate // size % tile == 0
        ]
        raise InvalidInputError(
            f"{spec.name}: moe_tp={layout.moe_tp} cuts the {spec.moe_intermediate}-wide "
            f"experts to {width}, not a multiple of the {tile}-wide fp8_block tiles; use "
            f"moe_tp of {', '.join(map(str, works)) or 'another size'} and more moe_ep."
        )


def _divisors(number: int) -> str:
    return ", ".join(str(d) for d in range(1, number + 1) if number % d == 0)
