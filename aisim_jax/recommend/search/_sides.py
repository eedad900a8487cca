"""Role settings with their prices and KV pools looked up, and those that cannot run."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from aisim_jax._errors import AisimError, InvalidInputError, NoKvBudgetError
from aisim_jax.replay import Resolved, Role, Transfer, resolve_deployments

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
        role: sorted(_singles(own), key=lambda one: (-one.shape.gpus, one))
        for role, own in space.roles.items()
    }
    if len(widest) == 1 or not all(widest.values()):
        return {}
    choices = [
        dict(zip(widest, pair, strict=True))
        for pair in zip(*widest.values(), strict=False)
    ]
    found = resolve_deployments([template.prediction(one) for one in choices])
    usable = (
        choice
        for choice, one in zip(choices, found, strict=True)
        if isinstance(one, Resolved)
    )
    return next(usable, choices[0])


def _singles(space: RoleSpace) -> list[RoleSetting]:
    """One replica of every layout with every choice of limits."""
    return list(dict.fromkeys(_single(one) for one in _settings(space)))


def _resolve_role(
    template: Template,
    branch: Branch,
    role: str,
    space: RoleSpace,
    partners: Mapping[str, RoleSetting],
    context_tokens: int,
) -> Sides:
    singles = _singles(space)
    found = resolve_deployments(
        [template.prediction({**partners, role: one}) for one in singles]
    )
    known = dict(zip(singles, found, strict=True))
    usable: list[Side] = []
    dropped = [
        _above_budget(branch, role, shape)
        for shape, _ in itertools.product(space.above_budget, space.knobs)
    ]
    for setting in _settings(space):
        resolved = known[_single(setting)]
        if isinstance(resolved, AisimError):
            dropped.append(_refused(resolved, branch, role, setting.shape))
            continue
        deployment = resolved.deployment
        own = deployment.prefill if role == "prefill" else deployment.decode
        assert own is not None
        held = own.num_blocks * own.block_size
        # A pool of a given size is meant as it is.
        if setting.knobs.memory_fraction is not None and held <= context_tokens:
            dropped.append(
                _too_small(branch, role, setting.shape, held, context_tokens)
            )
            continue
        workers = replace(own, workers=setting.shape.replicas)
        usable.append(Side(setting, workers, resolved))
    return Sides(tuple(usable), tuple(dropped))


def _above_budget(branch: Branch, role: str, shape: Shape) -> Dropped:
    sentence = (
        f"{shape.gpus} GPUs exceed optimization.constraints.max_candidate_gpus, the "
        "least of the other role taken off; raise it or list a smaller shape"
    )
    return Dropped("infeasible", "gpu_budget", sentence, branch, role, shape, 1)


def _too_small(
    branch: Branch, role: str, shape: Shape, held_tokens: int, context_tokens: int
) -> Dropped:
    sentence = (
        f"the KV cache of a rank holds {held_tokens:,} tokens, not more than one context "
        f"of {context_tokens:,}; use more GPUs per worker or a smaller "
        "engine.context_length"
    )
    return Dropped("infeasible", "kv_capacity", sentence, branch, role, shape, 1)


def _refused(error: AisimError, branch: Branch, role: str, shape: Shape) -> Dropped:
    if isinstance(error, NoKvBudgetError):
        status, category = "infeasible", "kv_capacity"
    elif isinstance(error, InvalidInputError):
        status, category = "infeasible", "backend_topology"
    else:
        status, category = "unsupported", "candidate_materialization"
    return Dropped(status, category, str(error), branch, role, shape, 1)


def transfers(
    template: Template, prefill: Sequence[Side], decode: Sequence[Side]
) -> Callable[[Side, Side], Transfer]:
    """The hand-over between two roles; it may depend on both layouts."""
    firsts = [_first_of_layouts(sides) for sides in (prefill, decode)]
    pairs = list(itertools.product(*firsts))
    found = resolve_deployments(
        [
            template.prediction({"prefill": one.setting, "decode": other.setting})
            for one, other in pairs
        ]
    )
    known = {
        tuple(side.setting.shape.layout for side in pair): one.deployment.transfer
        for pair, one in zip(pairs, found, strict=True)
        if isinstance(one, Resolved)
    }

    def transfer(one: Side, other: Side) -> Transfer:
        return known[one.setting.shape.layout, other.setting.shape.layout]

    return transfer


def _first_of_layouts(sides: Iterable[Side]) -> list[Side]:
    return list({side.setting.shape.layout: side for side in sides}.values())
