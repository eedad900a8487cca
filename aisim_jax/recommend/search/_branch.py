"""The candidates of one branch: role settings combined, alike ones folded."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from aisim_jax._errors import InvalidInputError
from aisim_jax.config import RecommendationConfig, plain
from aisim_jax.memory import load_concurrency, steady_requests
from aisim_jax.replay import Deployment, Transfer, build_workload
from aisim_jax.traffic import Workload

from ._canonical import compact
from ._folding import Duty, extremes, role_behaviour
from ._materialize import Template
from ._records import Branch, Candidate, Dropped
from ._sides import Side, Sides, resolve_sides, transfers
from ._space import BranchSpace, branch_space


class Load(NamedTuple):
    """A value of the load, and the share of the KV capacity that it was given as."""

    value: Any
    kv_ratio: float | None


def branch_pool(
    config: RecommendationConfig,
    branch: Branch,
    context_tokens: int,
    *,
    has_experts: bool,
    beside: Path | None,
) -> tuple[list[Candidate], list[Dropped]]:
    """Distinct candidates of a branch, and the groups that were dropped.

    context_tokens: what one rank's cache must hold, and more.
    """
    space = branch_space(config, branch, has_experts=has_experts)
    template = Template(config, branch, space, context_tokens, beside)
    sides = resolve_sides(template, branch, space, context_tokens)
    limits = config.optimization.constraints
    builder = _Builder(
        template,
        branch,
        sides,
        (limits.min_candidate_gpus or 1, limits.max_candidate_gpus),
        beside,
    )
    dropped = builder.lost_settings(len(space.loads))
    candidates: list[Candidate] = []
    for value in space.loads:
        for load, anchors, lost in _loads(config, space, branch, sides, value):
            if lost is None:
                candidates += builder.under(load, anchors)
            else:
                dropped.append(builder.lost_load(lost, anchors))
    return candidates, _grouped(dropped)


def _anchor(branch: Branch) -> Duty:
    """The role whose cache a relative load fills."""
    return "aggregated" if branch.mode == "aggregated" else "decode"


def _loads(
    config: RecommendationConfig,
    space: BranchSpace,
    branch: Branch,
    sides: Mapping[str, Sides],
    value: Any,
) -> Iterator[tuple[Load, tuple[Side, ...], str | None]]:
    """A load with the settings of the anchor role that it applies to, or why it cannot."""
    every = sides[_anchor(branch)].usable
    if space.load_field != "fraction":
        yield Load(value, None), every, None
        return
    source: Any = config.traffic.source
    groups: dict[tuple[int, str | None], list[Side]] = {}
    for side in every:
        role = side.role
        requests = steady_requests(
            role.num_blocks * role.block_size,
            role.block_size,
            source.input_tokens,
            source.output_tokens,
            ranks=role.ranks * role.workers,
        )
        try:
            key = (load_concurrency(value, requests), None)
        except InvalidInputError as error:
            key = (0, str(error))
        groups.setdefault(key, []).append(side)
    for (concurrency, lost), members in groups.items():
        yield Load(concurrency, value), tuple(members), lost


class _Class(NamedTuple):
    """Settings of one role that behave alike under a load; the first stands for all."""

    members: tuple[Side, ...]

    @property
    def first(self) -> Side:
        return self.members[0]


class _Builder:
    """Combines the settings of a branch within the GPU budget."""

    def __init__(
        self,
        template: Template,
        branch: Branch,
        sides: Mapping[str, Sides],
        gpus: tuple[int, int],
        beside: Path | None,
    ) -> None:
        self._template = template
        self._branch = branch
        self._sides = sides
        self._least, self._most = gpus
        self._beside = beside
        self._workloads: dict[tuple[Any, int], Workload] = {}
        self._transfer = None
        if branch.mode == "disaggregated":
            own = (sides["prefill"].usable, sides["decode"].usable)
            self._transfer = transfers(template, *own)

    def under(self, load: Load, anchors: Iterable[Side]) -> list[Candidate]:
        """Candidates under one load."""
        role = _anchor(self._branch)
        classes = self._classes(load, role, anchors)
        if self._transfer is None:
            return [
                self._candidate(load, {role: own})
                for own in classes
                if self._within(own.first)
            ]
        entries = self._classes(load, "prefill", self._sides["prefill"].usable)
        return [
            self._candidate(load, {"prefill": entry, "decode": own})
            for entry in entries
            for own in classes
            if self._within(entry.first, own.first)
        ]

    def _within(self, *sides: Side) -> bool:
        gpus = sum(side.setting.shape.gpus for side in sides)
        return self._least <= gpus <= self._most

    def _classes(self, load: Load, role: Duty, sides: Iterable[Side]) -> list[_Class]:
        groups: dict[Hashable, list[Side]] = {}
        for side in sides:
            facts = extremes(self._workload(load, role, side))
            policy = side.resolved.deployment.policy
            key = (side.setting.shape, role_behaviour(side.role, policy, role, facts))
            groups.setdefault(key, []).append(side)
        return [_Class(tuple(members)) for members in groups.values()]

    def _workload(self, load: Load, role: str, side: Side) -> Workload:
        """Prompts may be built of whole blocks, hence one workload per block size."""
        key = (load.value, side.role.block_size)
        if key not in self._workloads:
            config = self._template.prediction({role: side.setting}, load.value)
            self._workloads[key] = build_workload(config, side.resolved, self._beside)
        return self._workloads[key]

    def _candidate(self, load: Load, roles: dict[str, _Class]) -> Candidate:
        settings = {role: own.first.setting for role, own in roles.items()}
        config = self._template.prediction(settings, load.value)
        written = plain(config)
        entry_role, entry = next(iter(roles.items()))
        prefill = roles.get("prefill")
        last = next(reversed(roles.values())).first
        transfer = Transfer()
        if prefill is not None and self._transfer is not None:
            transfer = self._transfer(prefill.first, last)
        stands_for = 1
        for own in roles.values():
            stands_for *= len(own.members)
        return Candidate(
            branch=self._branch,
            roles=settings,
            kv_load_ratio=load.kv_ratio,
            stands_for=stands_for,
            workload=self._workload(load, entry_role, entry.first),
            deployment=Deployment(
                policy=last.resolved.deployment.policy,
                decode=last.role,
                prefill=None if prefill is None else prefill.first.role,
                transfer=transfer,
            ),
            prediction=written,
            provenance={
                role: own.first.resolved.provenance[role] for role, own in roles.items()
            },
            text=compact(written),
        )

    def lost_settings(self, loads: int) -> list[Dropped]:
        """Settings that cannot run, each with the candidates that it would have made.

        A pair of two such settings counts once, with its prefill setting.
        """
        lost: list[Dropped] = []
        for role, own in self._sides.items():
            partners = self._partner_gpus(role)
            for one in own.dropped:
                assert one.shape is not None
                gpus = one.shape.gpus
                if one.reason_category == "gpu_budget" or not partners:
                    pairs = max(len(partners), 1)
                else:
                    pairs = sum(
                        self._least <= gpus + other <= self._most for other in partners
                    )
                lost.append(one._replace(candidates=pairs * loads))
        return lost

    def _partner_gpus(self, role: str) -> list[int]:
        """GPUs of every setting of the other role; none when there is no other role."""
        if role == "aggregated":
            return []
        other = self._sides["decode" if role == "prefill" else "prefill"]
        gpus = [side.setting.shape.gpus for side in other.usable]
        if role == "prefill":
            gpus += [one.shape.gpus for one in other.dropped if one.shape]
        return gpus

    def lost_load(self, sentence: str, anchors: tuple[Side, ...]) -> Dropped:
        """Settings whose cache holds less than one request of a relative load."""
        role = _anchor(self._branch)
        partners = self._partner_gpus(role) or [0]
        pairs = sum(
            self._least <= side.setting.shape.gpus + other <= self._most
            for side in anchors
            for other in partners
        )
        shape = anchors[0].setting.shape
        return Dropped(
            "infeasible", "kv_capacity", sentence, self._branch, role, shape, pairs
        )


def _grouped(dropped: Iterable[Dropped]) -> list[Dropped]:
    """One entry per reason; the first shape stands for the others."""
    groups: dict[tuple[object, ...], Dropped] = {}
    for one in dropped:
        key = (one.branch, one.role, one.reason_category, one.reason)
        first = groups.get(key)
        groups[key] = (
            one
            if first is None
            else first._replace(candidates=first.candidates + one.candidates)
        )
    return list(groups.values())
