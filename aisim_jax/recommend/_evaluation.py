"""One experiment from prices to candidate deployments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Integer

from aisim_jax._errors import AisimError
from aisim_jax.models import Layout

from ._deployments import Deployments, as_table, from_points
from ._experiment import Experiment
from ._layouts import Role
from ._limits import aggregated_codes, role_codes
from ._pairs import compatible_pairs, complete_pairs, pairable, replica_limits
from ._points import (
    AggregatedPoints,
    RolePoints,
    aggregated_axes,
    aggregated_points,
    role_batches,
    role_points,
)
from ._reasons import Reason
from ._selection import best_per_target, rounded
from ._surfaces import Surfaces
from ._visiting import AggregatedGrid, slice_numbers, visited_points


@dataclass(frozen=True, eq=False)
class PoolView:
    """The lanes of compiled surfaces that one role tries, and layouts it cannot build."""

    surfaces: Surfaces
    lanes: Integer[np.ndarray, " cands"]
    rejected: Mapping[Layout, AisimError]
    large_ep: bool


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What an experiment evaluated: points, their reasons, candidate deployments.

    `aggregated` with its `codes`, or `prefill` and `decode` rows with theirs; layouts
    are indexed by the surfaces of the pools.
    """

    pools: Mapping[str, PoolView]
    aggregated: AggregatedPoints | None
    prefill: RolePoints | None
    decode: RolePoints | None
    codes: tuple[Integer[np.ndarray, " _"], ...]
    candidates: Deployments

    @property
    def evaluated(self) -> int:
        """Points that have a reason code."""
        return sum(code.size for code in self.codes)

    def table(self, role: str) -> AggregatedPoints | RolePoints:
        """Points of "agg", "prefill" or "decode"."""
        tables = {
            "agg": self.aggregated,
            "prefill": self.prefill,
            "decode": self.decode,
        }
        found = tables[role]
        assert found is not None, role
        return found

    def layouts(self, role: str) -> tuple[Layout, ...]:
        """Layouts that the points' `layout` column indexes."""
        return self.pools[role].surfaces.layouts


def evaluate_aggregated(
    question: Experiment, pool: PoolView, *, compat: bool
) -> Evaluation:
    """Evaluate an aggregated experiment; complete unless `compat`."""
    grid = aggregated_axes(question)
    points = aggregated_points(question, pool.surfaces, pool.lanes, grid, compat=compat)
    if compat:
        points = points._replace(reason=_visited_codes(question, points, grid))
    codes = aggregated_codes(question, points)
    usable = np.flatnonzero(points.reason == Reason.MEETS)
    if compat:
        kept = _kept_points(question, points, usable)
        candidates = as_table(from_points(points, kept))
    else:
        if question.request_latency_ms is None and question.ttft_ms is not None:
            usable = usable[points.ttft_ms[usable] <= question.ttft_ms]
        candidates = from_points(points, usable)
    return Evaluation({"agg": pool}, points, None, None, (codes,), candidates)


def _visited_codes(
    question: Experiment, points: AggregatedPoints, grid: AggregatedGrid
) -> Integer[np.ndarray, " pts"]:
    """Reasons with the compatible sweep's stops and slice dedup."""
    stops = np.isin(points.reason, (Reason.MEMORY, Reason.KV_ROOM))
    slices = slice_numbers(grid, question.isl, question.osl)
    if question.nextn:
        slices = np.zeros_like(slices)
    visited = visited_points(grid, slices, stops.reshape(-1, grid.batch.size)).ravel()
    skipped = ~visited & (points.reason == Reason.MEETS)
    return np.where(skipped, Reason.NOT_VISITED, points.reason).astype(np.int8)


def _kept_points(
    question: Experiment,
    points: AggregatedPoints,
    usable: Integer[np.ndarray, " rows"],
) -> Integer[np.ndarray, " kept"]:
    kept = best_per_target(
        points.layout[usable],
        rounded(points.requests_per_s[usable]),
        points.ttft_ms[usable],
        points.tpot_ms[usable],
        question.targets(),
        question.parameters.best_per_target,
    )
    return usable[kept]


def evaluate_disaggregated(
    question: Experiment, prefill_pool: PoolView, decode_pool: PoolView, *, compat: bool
) -> Evaluation:
    """Evaluate a disaggregated experiment; complete unless `compat`."""
    prefill = _role(question, prefill_pool, "prefill", compat)
    decode = _role(question, decode_pool, "decode", compat)
    if compat:
        prefill, decode = _until_first_stop(prefill), _until_first_stop(decode)
    layouts = prefill_pool.surfaces.layouts, decode_pool.surfaces.layouts
    node_gpus = prefill_pool.surfaces.pool.tables.spec.gpus_per_node
    large_ep = prefill_pool.large_ep or decode_pool.large_ep
    limits = replica_limits(question, compat=compat, large_ep=large_ep)
    handover = pairable(question, *layouts, node_gpus)
    if compat:
        candidates = compatible_pairs(
            question, prefill, decode, layouts, handover, limits
        )
    else:
        candidates = complete_pairs(
            question,
            prefill,
            decode,
            handover,
            limits,
            charge_idle=question.max_replica_gpus is None,
        )
    codes = tuple(
        role_codes(
            question,
            points,
            decodes=points is decode,
            room_gpus=limits.max_gpus - int(min(other.gpus, default=0)),
        )
        for points, other in ((prefill, decode), (decode, prefill))
    )
    pools = {"prefill": prefill_pool, "decode": decode_pool}
    return Evaluation(pools, None, prefill, decode, codes, candidates)


def _role(question: Experiment, pool: PoolView, role: Role, compat: bool) -> RolePoints:
    batches = role_batches(question, role)
    return role_points(
        question, pool.surfaces, pool.lanes, role, batches, compat=compat
    )


def _until_first_stop(points: RolePoints) -> RolePoints:
    """Larger batches of a layout are not tried after one that does not fit."""
    stops = np.isin(points.reason, (Reason.MEMORY, Reason.KV_ROOM))
    before = np.cumsum(stops) - stops
    starts = np.flatnonzero(np.diff(points.layout, prepend=-1))
    sizes = np.diff(np.append(starts, points.layout.size))
    tried = before == np.repeat(before[starts], sizes)
    skipped = ~tried & (points.reason == Reason.MEETS)
    codes = np.where(skipped, Reason.NOT_VISITED, points.reason)
    return points._replace(reason=codes.astype(np.int8))
