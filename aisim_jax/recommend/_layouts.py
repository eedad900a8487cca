"""Which parallel layouts are tried: candidate lists per dimension, then filters."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from .._errors import InvalidInputError
from ..models import Layout


Role = Literal["agg", "prefill", "decode"]


class LayoutLists(NamedTuple):
    """Candidate sizes per dimension; `gpus` are the allowed GPUs of one worker."""

    gpus: tuple[int, ...]
    tp: tuple[int, ...]
    pp: tuple[int, ...] = (1,)
    dp: tuple[int, ...] = (1,)
    moe_tp: tuple[int, ...] = (1,)
    moe_ep: tuple[int, ...] = (1,)
    cp: tuple[int, ...] = (1,)


_NODE = (1, 2, 4, 8)
_TWO_NODES = (1, 2, 4, 8, 16)
_LARGE_EP_TRTLLM = {
    "agg": (2, 4, 8, 16, 32, 64),
    "prefill": (4, 8, 16, 32),
    "decode": (4, 8, 16, 32, 64),
}
_LARGE_EP_SGLANG = {
    "agg": (8, 16, 32, 64),
    "prefill": (8, 16, 32),
    "decode": (8, 16, 32, 64),
}


def _union(first: Sequence[int], second: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted({*first, *second}))


def _with_large_ep(
    lists: LayoutLists, backend: str, role: Role, covered: Sequence[int]
) -> LayoutLists:
    """Unite the lists with expert-parallel sizes beyond one node."""
    if backend == "vllm":
        return lists._replace(
            gpus=_union(lists.gpus, covered),
            dp=_union(lists.dp, covered),
            moe_ep=_union(lists.moe_ep, covered),
        )
    if backend == "trtllm":
        sizes = _LARGE_EP_TRTLLM[role]
        ranks = sizes
    else:
        sizes = _LARGE_EP_SGLANG[role]
        ranks = tuple(n for n in (1, 2, 4, 8, 16, 32, 64) if n <= max(sizes))
    return lists._replace(
        gpus=_union(lists.gpus, sizes),
        dp=_union(lists.dp, ranks),
        moe_ep=_union(lists.moe_ep, sizes),
    )


def default_lists(
    backend: str,
    *,
    has_experts: bool,
    role: Role = "agg",
    rack_scale: bool = False,
    large_ep_sizes: Sequence[int] = (),
) -> LayoutLists:
    """Sizes that are tried when the user gives none.

    `rack_scale`: 16-GPU dense workers are worth trying (NVLink beyond one node).
    `large_ep_sizes`: expert-parallel sizes beyond one node that have all-to-all
    measurements for this model shape and system; empty when there are none.
    Context parallelism is a prefill matter of SGLang: decode workers keep cp = 1.
    """
    cp = _NODE if backend == "sglang" and role != "decode" else (1,)
    if not has_experts:
        gpus = _TWO_NODES if rack_scale else _NODE
        return LayoutLists(gpus=gpus, tp=gpus, cp=cp)
    lists = LayoutLists(
        gpus=_TWO_NODES,
        tp=_TWO_NODES,
        dp=_TWO_NODES,
        moe_tp=_TWO_NODES,
        moe_ep=_TWO_NODES,
        cp=cp,
    )
    if not large_ep_sizes:
        return lists
    return _with_large_ep(lists, backend, role, large_ep_sizes)


def override_lists(
    lists: LayoutLists, given: Mapping[str, Sequence[int]], backend: str
) -> LayoutLists:
    """Replace dimensions by the user's own candidates (ascending, distinct, >= 1)."""
    for name, sizes in given.items():
        if name not in LayoutLists._fields:
            raise InvalidInputError(
                f"layout override {name!r} is not a dimension; "
                f"use one of {', '.join(LayoutLists._fields)}"
            )
        if not sizes or any(size < 1 for size in sizes):
            raise InvalidInputError(
                f"layout override {name}={list(sizes)}: give at least one size >= 1"
            )
    if backend != "sglang" and any(size > 1 for size in given.get("cp", ())):
        raise InvalidInputError(
            f"cp={list(given['cp'])}: context parallelism is not available on "
            f"{backend}; use sglang or cp=1"
        )
    return lists._replace(
        **{name: tuple(sorted(set(sizes))) for name, sizes in given.items()}
    )


@lru_cache(maxsize=256)
def candidate_layouts(
    lists: LayoutLists, backend: str, *, has_experts: bool, total_gpus: int
) -> tuple[Layout, ...]:
    """Layouts of one worker in enumeration order: tp outermost, cp innermost.

    Dense: tp * pp * cp must be an allowed worker size. Experts: dp * tp * pp * cp must
    be one and dp * tp * cp = moe_tp * moe_ep; TensorRT-LLM takes no tp with dp, vLLM no
    expert tp with expert ep.
    """
    allowed = {gpus for gpus in lists.gpus if gpus <= total_gpus}
    layouts = []
    for sizes in itertools.product(*lists[1:]):
        layout = Layout(*sizes)
        if layout.gpus not in allowed:
            continue
        if has_experts:
            width = layout.dp * layout.tp * layout.cp
            if width != layout.moe_tp * layout.moe_ep:
                continue
            if backend == "trtllm" and layout.dp > 1 and layout.tp > 1:
                continue
            if backend == "vllm" and layout.moe_tp > 1 and layout.moe_ep > 1:
                continue
        layouts.append(layout)
    return tuple(layouts)
