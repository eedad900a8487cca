"""The shapes and settings of every role, as the configuration lets them vary."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

from aisim_jax.config import (
    ParallelSpace,
    RecommendationConfig,
    parallel_space,
    search_domains,
)
from aisim_jax.models import Layout

from ._pool import Shape, free_layouts, shapes_within, structured_layouts
from ._records import Branch, Knobs


ROLES_OF_MODE = {
    "aggregated": ("aggregated",),
    "disaggregated": ("prefill", "decode"),
}
# Configuration name -> name in a layout.
SIZES = {
    "tensor": "tp",
    "pipeline": "pp",
    "attention_data": "dp",
    "moe_tensor": "moe_tp",
    "moe_expert": "moe_ep",
}
KNOB_PATHS = {
    "max_batched_tokens": "scheduler.max_batched_tokens",
    "max_sequences": "scheduler.max_sequences",
    "block_size": "kv_cache.block_size",
    "memory_fraction": "kv_cache.capacity.memory_fraction",
}
LOAD = "traffic.load."


class RoleSpace(NamedTuple):
    """Shapes of one role within the budget, those listed above it, and the settings."""

    shapes: tuple[Shape, ...]
    above_budget: tuple[Shape, ...]
    knobs: tuple[Knobs, ...]


class BranchSpace(NamedTuple):
    """What one branch chooses from; load_field None: the load is given."""

    roles: dict[str, RoleSpace]
    load_field: str | None
    loads: tuple[Any, ...]


def branch_space(
    config: RecommendationConfig, branch: Branch, *, has_experts: bool
) -> BranchSpace:
    """Everything that the candidates of a branch may be."""
    domains = search_domains(config, branch.mode, branch.backend)
    roles = ROLES_OF_MODE[branch.mode]
    # Every other role needs at least one GPU.
    most = config.optimization.constraints.max_candidate_gpus - (len(roles) - 1)
    spaces = {}
    for role in roles:
        shapes, above = _shapes(
            parallel_space(config, role), branch.backend, has_experts, most
        )
        spaces[role] = RoleSpace(shapes, above, _knobs(domains, role))
    found = [path for path in domains if path.startswith(LOAD)]
    if not found:
        return BranchSpace(spaces, None, (None,))
    return BranchSpace(spaces, found[0].removeprefix(LOAD), domains[found[0]])


def _shapes(
    space: ParallelSpace, backend: str, has_experts: bool, most_gpus: int
) -> tuple[tuple[Shape, ...], tuple[Shape, ...]]:
    """Shapes within the budget, and listed ones above it."""
    if space.shapes is not None:
        listed = [_listed(entry) for entry in space.shapes]
        return (
            tuple(shape for shape in listed if shape.gpus <= most_gpus),
            tuple(shape for shape in listed if shape.gpus > most_gpus),
        )
    if space.legal_pool:
        layouts = structured_layouts(backend, has_experts=has_experts)
        return shapes_within(layouts, most_gpus), ()
    given = {
        name: sizes
        for field, name in SIZES.items()
        if (sizes := space.sizes[field]) is not None
    }
    layouts = free_layouts(backend, given, has_experts=has_experts, most_gpus=most_gpus)
    return shapes_within(layouts, most_gpus, space.sizes["replicas"]), ()


def _listed(entry: Any) -> Shape:
    sizes = {name: getattr(entry, field) for field, name in SIZES.items()}
    return Shape(entry.replicas, Layout(**sizes, cp=entry.prefill_context or 1))


def _knobs(domains: Mapping[str, tuple[Any, ...]], role: str) -> tuple[Knobs, ...]:
    place = f"engine.workers.{role}"
    values = [domains.get(f"{place}.{path}", (None,)) for path in KNOB_PATHS.values()]
    return tuple(itertools.starmap(Knobs, itertools.product(*values)))
