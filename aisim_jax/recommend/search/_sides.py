"""Role settings with their prices and KV pools looked up, and those that cannot run."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from aisim_jax._errors import AisimError, InvalidInputError, NoKvBudgetError
from aisim_jax.config import PredictionConfig
from aisim_jax.replay import Resolved, Role, Transfer, resolve_deployment

from ._materialize import Template
from ._pool import Shape
from ._records import Branch, Dropped, RoleSetting
from ._space import BranchSpace, RoleSpace


class Side(NamedTuple):
    """One resolved role of many candidates."""

    setting: RoleSetting
    role: Role
    resolved: Resolved


class Sides(NamedTuple):
    """Settings that can run and the others, each with its reason."""

    usable: tuple[Side, ...]
    dropped: tuple[Dropped, ...]


def resolve_sides(
    template: Template,
    branch: Branch,
    space: BranchSpace,
    context_tokens: int,
) -> dict[str, Sides]:
    """Every setting of every role; replicas of a layout are looked up once.

    A setting is dropped when it cannot be priced, its weights leave no room for a cache,
    or its cache does not hold more than one context of `context_tokens`.
    """
    partners = _partners(template, space)
    return {
        role: _resolve_role(template, branch, role, own, partners, context_tokens)
        for role, own in space.roles.items()
    }


def _single(setting: RoleSetting) -> RoleSetting:
    return setting._replace(shape=setting.shape._replace(replicas=1))


def _settings(space: RoleSpace) -> list[RoleSetting]:
    return list(
        itertools.starmap(RoleSetting, itertools.product(space.shapes, space.knobs))
    )


def _partners(template: Template, space: BranchSpace) -> dict[str, RoleSetting]:
    """A setting of every role that resolves, so that the other role can be judged.

    The widest workers leave the most memory: they are tried first.
    """
    widest = {
        role: sorted(
            {_single(one) for one in _settings(own)},
            key=lambda one: (-one.shape.gpus, one),
        )
        for role, own in space.roles.items()
    }
    if len(widest) == 1 or not all(widest.values()):
        return {}
    for pair in zip(*widest.values(), strict=False):
        chosen = dict(zip(widest, pair, strict=True))
        if isinstance(_resolved(template.prediction(chosen)), Resolved):
            return chosen
    return {role: settings[0] for role, settings in widest.items()}


def _resolve_role(
    template: Template,
    branch: Branch,
    role: str,
    space: RoleSpace,
    partners: Mapping[str, RoleSetting],
    context_tokens: int,
) -> Sides:
    usable: list[Side] = []
    dropped: list[Dropped] = [
        Dropped(
            "infeasible",
            "gpu_budget",
            f"{shape.gpus} GPUs exceed optimization.constraints.max_candidate_gpus",
            branch,
            role,
            shape,
            1,
        )
        for shape, _ in itertools.product(space.above_budget, space.knobs)
    ]
    known: dict[RoleSetting, Resolved | AisimError] = {}
    for setting in _settings(space):
        single = _single(setting)
        if single not in known:
            roles = {**partners, role: single}
            known[single] = _resolved(template.prediction(roles))
        found = known[single]
        if isinstance(found, AisimError):
            dropped.append(_refused(found, branch, role, setting.shape))
            continue
        deployment = found.deployment
        own = deployment.prefill if role == "prefill" else deployment.decode
        assert own is not None
        held = own.num_blocks * own.block_size
        if setting.knobs.memory_fraction is not None and held <= context_tokens:
            sentence = (
                f"the KV cache of a rank holds {held:,} tokens, not one context of "
                f"{context_tokens:,}; use more GPUs per worker or a smaller "
                "engine.context_length"
            )
            dropped.append(
                Dropped(
                    "infeasible",
                    "kv_capacity",
                    sentence,
                    branch,
                    role,
                    setting.shape,
                    1,
                )
            )
            continue
        usable.append(
            Side(setting, replace(own, workers=setting.shape.replicas), found)
        )
    return Sides(tuple(usable), tuple(dropped))


def _resolved(config: PredictionConfig) -> Resolved | AisimError:
    try:
        return resolve_deployment(config)
    except AisimError as error:
        return error


def _refused(error: AisimError, branch: Branch, role: str, shape: Shape) -> Dropped:
    if isinstance(error, NoKvBudgetError):
        status, category = "infeasible", "kv_capacity"
    elif isinstance(error, InvalidInputError):
        status, category = "infeasible", "backend_topology"
    else:
        status, category = "unsupported", "candidate_materialization"
    return Dropped(status, category, str(error), branch, role, shape, 1)


def transfers(
    template: Template, sides: Mapping[str, Sides]
) -> Callable[[Side, Side], Transfer]:
    """The hand-over between two roles; it may depend on both layouts."""
    known: dict[tuple[object, object], Transfer] = {}

    def transfer(prefill: Side, decode: Side) -> Transfer:
        key = (prefill.setting.shape.layout, decode.setting.shape.layout)
        if key not in known:
            pair = {"prefill": prefill.setting, "decode": decode.setting}
            config = template.prediction(pair)
            known[key] = resolve_deployment(config).deployment.transfer
        return known[key]

    return transfer
