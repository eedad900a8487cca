"""The pools of workers that experiments need, compiled together and shared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from aisim_jax._errors import AisimError, UnsupportedError
from aisim_jax.models import Layout, check_layout

from ._evaluation import PoolView
from ._experiment import Experiment
from ._large_ep import large_ep_sizes, refuse_large_ep
from ._layouts import (
    LayoutLists,
    Role,
    candidate_layouts,
    default_lists,
    override_lists,
)
from ._surfaces import Pool, PoolKey, SurfaceCache


XPU_SYSTEMS = frozenset({"b60"})
ROLES: dict[str, tuple[Role, ...]] = {"agg": ("agg",), "disagg": ("prefill", "decode")}


@dataclass(frozen=True, eq=False)
class RolePlan:
    """What one role of an experiment tries: lists, buildable layouts, rejected ones.

    `large_ep`: the lists reach beyond one node on all-to-all measurements.
    """

    key: PoolKey
    lists: LayoutLists
    layouts: tuple[Layout, ...]
    rejected: dict[Layout, AisimError]
    large_ep: bool


def pool_key(question: Experiment, role: Role) -> PoolKey:
    """Where the workers of `role` run."""
    model, system = question.model, question.system
    backend, version = question.backend, question.version
    if role == "decode":
        model = question.decode_model or model
        system = question.decode_system or system
        backend = question.decode_backend or backend
        version = question.decode_version or version
    return PoolKey(
        model,
        system,
        backend,
        version,
        question.nextn,
        tuple(sorted(question.precision.items())),
        tuple(question.systems_paths),
    )


def plan_role(
    question: Experiment, role: Role, cache: SurfaceCache, *, compat: bool
) -> RolePlan:
    """Enumerate the layouts of a role and set aside those that cannot be built.

    The compatible sweep prices expert groups within a node all to all where that is
    measured; these are set aside too, not priced as something else. A model of which
    no layout is built is refused with its first reason.
    """
    key = pool_key(question, role)
    if key.system in XPU_SYSTEMS:
        raise UnsupportedError(
            f"{key.system}: the scheduler of Intel XPU engines is not swept; use a system "
            "with NVIDIA GPUs"
        )
    pool = cache.pool(key)
    experts = pool.spec.is_moe
    covered = large_ep_sizes(
        pool.spec, pool.precision.moe, key.system, key.backend, role
    )
    node_gpus = pool.tables.spec.gpus_per_node
    lists = default_lists(
        key.backend,
        has_experts=experts,
        role=role,
        rack_scale=pool.tables.spec.gpus_per_rack is not None,
        large_ep_sizes=covered,
    )
    lists = override_lists(lists, question.layouts.get(role, {}), key.backend)
    layouts = candidate_layouts(
        lists, key.backend, has_experts=experts, total_gpus=question.total_gpus
    )
    rejected = {}
    for layout in layouts:
        error = _broken_rule(pool, layout) or refuse_large_ep(
            layout, key.backend, node_gpus, covered if compat else ()
        )
        if error is not None:
            rejected[layout] = error
    buildable = tuple(layout for layout in layouts if layout not in rejected)
    reasons = list(rejected.values())
    if not buildable and reasons and isinstance(reasons[0], UnsupportedError):
        raise reasons[0]
    return RolePlan(key, lists, buildable, rejected, bool(covered))


def _broken_rule(pool: Pool, layout: Layout) -> AisimError | None:
    try:
        check_layout(pool.spec, pool.precision, layout, pool.tables.backend, pool.nextn)
    except AisimError as error:
        return error
    return None


def compile_plans(
    plans: Iterable[RolePlan], cache: SurfaceCache
) -> dict[PoolKey, tuple[Layout, ...]]:
    """Union of the layouts of every pool, sorted: one compilation serves all roles."""
    wanted: dict[PoolKey, set[Layout]] = {}
    for plan in plans:
        wanted.setdefault(plan.key, set()).update(plan.layouts)
    unions = {key: tuple(sorted(layouts)) for key, layouts in wanted.items()}
    for key, layouts in unions.items():
        if layouts:
            cache.surfaces(key, layouts)
    return unions


def view(
    plan: RolePlan, unions: dict[PoolKey, tuple[Layout, ...]], cache: SurfaceCache
) -> PoolView:
    """The lanes of one role within its pool's compiled surfaces."""
    union = unions[plan.key]
    place = {layout: lane for lane, layout in enumerate(union)}
    lanes = np.array([place[layout] for layout in plan.layouts], np.int64)
    return PoolView(
        cache.surfaces(plan.key, union), lanes, plan.rejected, plan.large_ep
    )
