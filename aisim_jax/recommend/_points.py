"""Every evaluated point as arrays: aggregated points and the rows of either role."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Integer

from aisim_jax.kernels import (
    RunVerdict,
    StaticMetrics,
    compose_aggregated,
    compose_static,
    halfway_kv_len,
    speculate_decode,
)
from aisim_jax.models import Layout

from ._experiment import Experiment
from ._grids import aggregated_batches, context_budgets, decode_batches
from ._layouts import Role
from ._reasons import Reason
from ._schedule import schedule_batch
from ._selection import rounded
from ._surfaces import Surfaces
from ._visiting import AggregatedGrid, aggregated_grid


Values = Float[np.ndarray, " pts"]
Counts = Integer[np.ndarray, " pts"]


class AggregatedPoints(NamedTuple):
    """Aggregated points, layout-major in the order of the grid.

    Rates count all ranks of one worker; memory is GiB per GPU, `missing_gib` what the
    point lacks where it does not fit; `reason` holds `Reason` codes of data and memory
    (the latency limits are applied later).
    """

    layout: Counts
    gpus: Counts
    batch: Values
    ctx_tokens: Values
    mixed_requests: Values
    mixed_ms: Values
    decode_ms: Values
    ttft_ms: Values
    tpot_ms: Values
    request_latency_ms: Values
    requests_per_s: Values
    tokens_per_s: Values
    tokens_per_s_per_gpu: Values
    tokens_per_s_per_user: Values
    concurrency: Values
    num_tokens: Values
    balance: Values
    memory_gib: Values
    missing_gib: Values
    reason: Integer[np.ndarray, " pts"]


class RolePoints(NamedTuple):
    """Prefill or decode workers, layout-major with ascending batch; see above.

    `gpus` is the footprint of one worker; the compatible table leaves context
    parallelism out of what its rate per GPU divides by, and holds three decimals.
    """

    layout: Counts
    gpus: Counts
    batch: Values
    ttft_ms: Values
    tpot_ms: Values
    request_latency_ms: Values
    requests_per_s: Values
    requests_per_s_per_gpu: Values
    tokens_per_s_per_user: Values
    concurrency: Values
    memory_gib: Values
    missing_gib: Values
    reason: Integer[np.ndarray, " pts"]


def _sizes(layouts: tuple[Layout, ...], name: str) -> Integer[np.ndarray, " lanes"]:
    return np.array([getattr(layout, name) for layout in layouts], np.int64)


def _fit_codes(
    has_data: np.ndarray, verdict: RunVerdict
) -> Integer[np.ndarray, " *pts"]:
    reason = np.where(verdict.kv_oom, Reason.KV_ROOM, Reason.MEETS)
    reason = np.where(verdict.model_oom, Reason.MEMORY, reason)
    return np.where(has_data, reason, Reason.NO_DATA).astype(np.int8)


def per_user(
    tpot_ms: Float[np.ndarray, " *pts"],
) -> Float[np.ndarray, " *pts"]:
    """Tokens/s that one request sees: 1000 / tpot, 0 without a decode phase."""
    return np.where(tpot_ms > 0, 1000.0 / np.where(tpot_ms > 0, tpot_ms, 1.0), 0.0)


def aggregated_axes(question: Experiment) -> AggregatedGrid:
    """The (batch, context budget) grid of an aggregated experiment."""
    parameters = question.parameters
    budgets = context_budgets(
        question.isl, parameters.context_stride_tokens, question.chunked_prefill
    )
    batches = aggregated_batches(parameters.max_aggregated_batch)
    return aggregated_grid(batches, budgets, question.isl)


def role_batches(question: Experiment, role: Role) -> Values:
    """Requests per attention-DP rank that a dedicated worker tries, ascending."""
    parameters = question.parameters
    if role == "decode":
        return np.array(decode_batches(parameters.decode_max_batch), np.float64)
    return np.arange(1.0, parameters.prefill_max_batch + 1.0)


def aggregated_points(
    question: Experiment,
    surfaces: Surfaces,
    lanes: Integer[np.ndarray, " cands"],
    grid: AggregatedGrid,
    *,
    compat: bool = False,
) -> AggregatedPoints:
    """Price every layout of `lanes` at every grid point; steps are priced once each.

    Rates count osl - 1 tokens per request, as the compatible tables do; a request of
    one output token counts it and has no TPOT, except in those tables.
    """
    engine = question.parameters.engine(question.backend)
    isl, osl, later = question.isl, question.osl, max(question.osl - 1.0, 0.0)
    progress = question.tokens_per_step
    schedule = schedule_batch(
        grid.batch, grid.ctx_tokens, isl, osl, progress, engine.schedule
    )
    mixed_ms = _mixed_steps(question, surfaces, lanes, grid, schedule.mixed_requests)
    decode_ms = _decode_steps(question, surfaces, lanes, schedule.decode_requests)
    metrics = compose_aggregated(
        mixed_ms,
        decode_ms,
        schedule.steps,
        grid.batch,
        later,
        progress,
        float(surfaces.pool.spec.layers),
        0.0,
        engine.queue,
    )
    layouts = tuple(surfaces.layouts[lane] for lane in lanes)
    ranks = (_sizes(layouts, "pp") * _sizes(layouts, "dp"))[:, None]
    gpus = _sizes(layouts, "gpus")[:, None]
    alone = grid.batch == 1
    resident = np.where(alone, 0.0, grid.batch - schedule.context_requests)
    step_tokens = np.asarray(
        surfaces.memory.mixed_tokens(
            grid.ctx_tokens.astype(np.int64), resident.astype(np.int64)
        )
    )
    footprint = surfaces.memory.gib(lanes[:, None], grid.batch, isl + osl, step_tokens)
    verdict = surfaces.memory.verdict(
        lanes[:, None], footprint, fraction=question.memory_fraction
    )
    tokens_per_s = metrics.tokens_per_s * ranks
    if osl == 1 and not compat:
        metrics = metrics._replace(tpot_ms=np.zeros_like(metrics.tpot_ms))
        tokens_per_s = 1000.0 / metrics.batch_ms * grid.batch * ranks
    has_data = np.isfinite(metrics.ttft_ms) & np.isfinite(metrics.tpot_ms)
    columns = AggregatedPoints(
        layout=lanes[:, None],
        gpus=gpus,
        batch=grid.batch,
        ctx_tokens=grid.ctx_tokens,
        mixed_requests=schedule.mixed_requests,
        mixed_ms=mixed_ms,
        decode_ms=decode_ms,
        ttft_ms=metrics.ttft_ms,
        tpot_ms=metrics.tpot_ms,
        request_latency_ms=metrics.ttft_ms + metrics.tpot_ms * later,
        requests_per_s=tokens_per_s / max(later, 1.0),
        tokens_per_s=tokens_per_s,
        tokens_per_s_per_gpu=tokens_per_s / gpus,
        tokens_per_s_per_user=per_user(metrics.tpot_ms) * (osl > 1),
        concurrency=grid.batch * ranks,
        num_tokens=np.where(alone, grid.ctx_tokens, resident + grid.ctx_tokens),
        balance=schedule.balance,
        memory_gib=np.asarray(footprint.total),
        missing_gib=np.asarray(verdict.missing),
        reason=_fit_codes(has_data, verdict),
    )
    return AggregatedPoints(*_flattened(columns, (lanes.size, grid.batch.size)))


def _mixed_steps(
    question: Experiment,
    surfaces: Surfaces,
    lanes: Integer[np.ndarray, " cands"],
    grid: AggregatedGrid,
    requests: Values,
) -> Float[np.ndarray, "cands pts"]:
    pairs = np.stack([grid.ctx_tokens, requests])
    (ctx, mixed), place = np.unique(pairs, axis=1, return_inverse=True)
    priced = surfaces.prices.mixed_ms(
        np.repeat(lanes, ctx.size),
        np.tile(ctx, lanes.size),
        np.tile(mixed, lanes.size),
        float(question.isl),
        float(question.osl),
        float(question.prefix),
    )
    return priced.reshape(lanes.size, ctx.size)[:, place.ravel()]


def _decode_steps(
    question: Experiment,
    surfaces: Surfaces,
    lanes: Integer[np.ndarray, " cands"],
    requests: Values,
) -> Float[np.ndarray, "cands pts"]:
    distinct, place = np.unique(requests, return_inverse=True)
    priced = surfaces.prices.decode_ms(
        np.repeat(lanes, distinct.size),
        np.tile(np.maximum(distinct, 1.0), lanes.size),
        halfway_kv_len(np, question.isl, question.osl),
    ).reshape(lanes.size, distinct.size)
    return np.where(distinct > 0, priced, 0.0)[:, place]


def _flattened(columns: tuple, shape: tuple[int, int]) -> list[np.ndarray]:
    return [np.broadcast_to(column, shape).ravel() for column in columns]


def role_points(
    question: Experiment,
    surfaces: Surfaces,
    lanes: Integer[np.ndarray, " cands"],
    role: Role,
    batch: Values,
    *,
    compat: bool,
) -> RolePoints:
    """Price dedicated prefill or decode workers at every batch size of `batch`."""
    parameters = question.parameters
    isl, osl, later = question.isl, question.osl, max(question.osl - 1.0, 0.0)
    decodes = role == "decode"
    lane, size = np.repeat(lanes, batch.size), np.tile(batch, lanes.size)
    layouts = tuple(surfaces.layouts[one] for one in lanes)
    pp, dp, gpus = (
        np.repeat(_sizes(layouts, name), batch.size) for name in ("pp", "dp", "gpus")
    )
    cp = np.repeat(_sizes(layouts, "cp"), batch.size)
    if decodes:
        spent_ms = parameters.decode_latency_correction * surfaces.prices.decode_sum_ms(
            lane, size, isl, osl, parameters.decode_stride_tokens
        )
        phases = np.zeros(lane.size), spent_ms
        footprint = surfaces.memory.decode_gib(lane, size, isl, osl)
    else:
        spent_ms = parameters.prefill_latency_correction * surfaces.prices.prefill_ms(
            lane, size, float(isl), float(question.prefix)
        )
        phases = spent_ms, np.zeros(lane.size)
        footprint = surfaces.memory.prefill_gib(lane, size, isl, question.prefix)
    verdict = surfaces.memory.verdict(
        lane, footprint, fraction=question.memory_fraction, static=True
    )
    concurrency = size * dp
    metrics = compose_static(*phases, concurrency, pp, later)
    charged = gpus // cp if compat else gpus
    timed = (
        metrics.ttft_ms,
        metrics.tpot_ms,
        metrics.request_latency_ms,
        metrics.requests_per_s,
        metrics.requests_per_s / charged,
        per_user(metrics.tpot_ms),
    )
    row = tuple(map(rounded, timed)) if compat else timed
    if decodes and question.tokens_per_step > 1:
        row = _speculated(row, question.tokens_per_step)
        row = tuple(map(rounded, row)) if compat else row
    return RolePoints(
        lane,
        gpus,
        size,
        *row,
        concurrency=concurrency,
        memory_gib=np.asarray(footprint.total),
        missing_gib=np.asarray(verdict.missing),
        reason=_fit_codes(np.isfinite(spent_ms), verdict),
    )


def _speculated(row: tuple[Values, ...], progress: float) -> tuple[Values, ...]:
    """Decode rows priced with one token per step, projected to `progress` tokens."""
    ttft_ms, tpot_ms, latency_ms, rate, rate_per_gpu, user = row
    static = StaticMetrics(ttft_ms, tpot_ms, latency_ms, rate)
    return (
        *speculate_decode(static, progress),
        rate_per_gpu * progress,
        user * progress,
    )
