"""Which parallel shapes a worker role may take, and which fit the GPU budget together."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from aisim_jax.models import Layout

from .._layouts import LayoutLists, candidate_layouts


WORKER_GPUS = (1, 2, 4, 8, 16)


class Shape(NamedTuple):
    """Workers of one role: how many, and the layout of each."""

    replicas: int
    layout: Layout

    @property
    def gpus(self) -> int:
        """GPUs of the whole role."""
        return self.replicas * self.layout.gpus


def structured_layouts(backend: str, *, has_experts: bool) -> tuple[Layout, ...]:
    """The structured pool: one way or another of splitting 1, 2, 4, 8 or 16 GPUs.

    Dense: tensor parallel. Experts, width w > 1: attention tensor or data parallel, with
    the experts spread (moe_ep = w) or split (moe_tp = w). Pipelines are not in the pool.
    """
    layouts = []
    for width in WORKER_GPUS:
        if not has_experts:
            layouts.append(Layout(tp=width))
            continue
        splits = [(width, 1), (1, width)] if width > 1 else [(1, 1)]
        layouts += [
            Layout(tp=tp, dp=dp, moe_tp=moe_tp, moe_ep=moe_ep)
            for moe_tp, moe_ep in reversed(splits)
            for tp, dp in splits
        ]
    return tuple(layout for layout in layouts if _runs_on(layout, backend))


def free_layouts(
    backend: str,
    sizes: Mapping[str, Sequence[int]],
    *,
    has_experts: bool,
    most_gpus: int,
) -> tuple[Layout, ...]:
    """Every consistent combination of independent sizes (names of `Layout`).

    A size that is not given takes every power of two up to a worker's 16 GPUs, a
    pipeline 1. The rules of consistency are those of the sweep.
    """
    lists = LayoutLists(
        gpus=tuple(range(1, most_gpus + 1)),
        tp=tuple(sizes.get("tp", WORKER_GPUS)),
        pp=tuple(sizes.get("pp", (1,))),
        dp=tuple(sizes.get("dp", WORKER_GPUS if has_experts else (1,))),
        moe_tp=tuple(sizes.get("moe_tp", WORKER_GPUS if has_experts else (1,))),
        moe_ep=tuple(sizes.get("moe_ep", WORKER_GPUS if has_experts else (1,))),
    )
    return candidate_layouts(
        lists, backend, has_experts=has_experts, total_gpus=most_gpus
    )


def shapes_within(
    layouts: Iterable[Layout], most_gpus: int, replicas: Sequence[int] | None = None
) -> tuple[Shape, ...]:
    """`layouts` with every number of replicas (or those given) that the budget holds."""
    found = []
    for layout in layouts:
        room = most_gpus // layout.gpus
        counts = range(1, room + 1) if replicas is None else replicas
        found += [Shape(count, layout) for count in counts if count <= room]
    return tuple(found)


def pairs_within(
    prefill: Sequence[Shape], decode: Sequence[Shape], least_gpus: int, most_gpus: int
) -> tuple[tuple[Shape, Shape], ...]:
    """Prefill and decode shapes whose GPUs together are within the budget."""
    return tuple(
        pair
        for pair in itertools.product(prefill, decode)
        if least_gpus <= pair[0].gpus + pair[1].gpus <= most_gpus
    )


def _runs_on(layout: Layout, backend: str) -> bool:
    """Whether an engine takes these sizes together."""
    if backend == "vllm":
        return not (layout.moe_tp > 1 and layout.moe_ep > 1)
    if backend == "trtllm":
        return not (layout.tp > 1 and layout.dp > 1)
    return True
