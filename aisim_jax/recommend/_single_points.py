"""Single deployments, evaluated by the formulas of the sweep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from aisim_jax._errors import InfeasibleError, InvalidInputError
from aisim_jax._units import GIB
from aisim_jax.kernels import RunFootprint, RunVerdict, compose_static
from aisim_jax.models import Layout, check_layout

from ._deployments import Deployments, from_pairs, table_precision
from ._experiment import Experiment
from ._layouts import Role
from ._points import (
    AggregatedPoints,
    RolePoints,
    aggregated_points,
    per_user,
    role_points,
)
from ._pools import pool_key
from ._reasons import Reason
from ._schedule import schedule_batch
from ._surfaces import SurfaceCache, Surfaces
from ._visiting import AggregatedGrid


LANE = np.zeros(1, np.int64)
RATES = (
    "ttft_ms",
    "tpot_ms",
    "request_latency_ms",
    "requests_per_s",
    "tokens_per_s",
    "tokens_per_s_per_gpu",
    "tokens_per_s_per_user",
    "concurrency",
)


@dataclass(frozen=True, slots=True)
class PoolChoice:
    """Workers of one role: layout, requests per attention-DP rank, how many.

    >>> PoolChoice(Layout(tp=2), batch=64, workers=2)
    PoolChoice(layout=Layout(tp=2, pp=1, dp=1, moe_tp=1, moe_ep=1, cp=1), batch=64, workers=2)
    """

    layout: Layout
    batch: int = 1
    workers: int = 1


@dataclass(frozen=True, slots=True)
class PointEstimate:
    """One deployment: latencies in ms, rates in 1/s, memory in GiB per GPU.

    `memory_gib` of the (decode) worker by part, `kv_oom` where the cache exceeds what
    the engine reserves; `schedule` holds the step counts and times of an aggregated
    point. Rates count one replica of `gpus` GPUs.
    """

    mode: str
    version: str
    ttft_ms: float
    tpot_ms: float
    request_latency_ms: float
    requests_per_s: float
    tokens_per_s: float
    tokens_per_s_per_gpu: float
    tokens_per_s_per_user: float
    concurrency: float
    gpus: int
    memory_gib: Mapping[str, float]
    kv_oom: bool
    missing_gib: float
    schedule: Mapping[str, float]


def _check_batch(batch: int, layout: Layout) -> None:
    if batch < 1:
        raise InvalidInputError(
            f"batch={batch} on {layout.label}: give at least one request per rank"
        )


def one_layout(
    question: Experiment, role: Role, layout: Layout, cache: SurfaceCache
) -> Surfaces:
    """Compiled prices and memory of one layout; its own error where it has none."""
    key = pool_key(question, role)
    pool = cache.pool(key)
    check_layout(pool.spec, pool.precision, layout, key.backend, question.nextn)
    surfaces = cache.surfaces(key, (layout,))
    error = surfaces.prices.errors[0]
    if error is not None:
        raise error
    return surfaces


def estimate_aggregated(
    question: Experiment, surfaces: Surfaces, batch: int, ctx_tokens: int
) -> PointEstimate:
    """A continuously batched worker at one batch size and context budget."""
    _check_batch(batch, surfaces.layouts[0])
    grid = AggregatedGrid(np.array([float(batch)]), np.array([float(ctx_tokens)]))
    points = aggregated_points(question, surfaces, LANE, grid)
    _require_fit(question, points, surfaces.layouts[0])
    engine = question.parameters.engine(question.backend)
    steps = schedule_batch(
        grid.batch,
        grid.ctx_tokens,
        question.isl,
        question.osl,
        question.tokens_per_step,
        engine.schedule,
    ).steps
    footprint = surfaces.memory.gib(
        LANE,
        batch,
        question.isl + question.osl,
        surfaces.memory.mixed_tokens(
            ctx_tokens, int(points.num_tokens[0]) - ctx_tokens
        ),
    )
    return PointEstimate(
        mode="agg",
        version=surfaces.pool.version,
        gpus=int(points.gpus[0]),
        memory_gib=_memory(footprint),
        kv_oom=bool(points.reason[0] == Reason.KV_ROOM),
        missing_gib=float(points.missing_gib[0]),
        schedule={
            "mixed_steps": float(steps.mixed_steps[0]),
            "decode_steps": float(steps.decode_steps[0]),
            "mixed_requests": float(points.mixed_requests[0]),
            "mixed_ms": float(points.mixed_ms[0]),
            "decode_ms": float(points.decode_ms[0]),
            "balance": float(points.balance[0]),
            "num_tokens": float(points.num_tokens[0]),
        },
        **_rates(points),
    )


def estimate_static(
    question: Experiment, surfaces: Surfaces, batch: int, mode: str
) -> PointEstimate:
    """One batch run to completion, or one of its phases."""
    _check_batch(batch, surfaces.layouts[0])
    layout, memory, prices = surfaces.layouts[0], surfaces.memory, surfaces.prices
    isl, osl, prefix = question.isl, question.osl, question.prefix
    later = max(osl - 1.0, 0.0)
    none = np.zeros(1)
    prefill_ms = decode_ms = none
    if mode != "static_gen":
        prefill_ms = prices.prefill_ms(LANE, float(batch), float(isl), float(prefix))
    if mode != "static_ctx" and osl > 1:
        decode_ms = prices.decode_sum_ms(
            LANE, batch, isl, osl, question.parameters.decode_stride_tokens
        )
    concurrency = float(batch * layout.dp)
    metrics = compose_static(prefill_ms, decode_ms, concurrency, layout.pp, later)
    footprint = {
        "static": lambda: memory.gib(LANE, batch, isl + osl, batch * (isl - prefix)),
        "static_ctx": lambda: memory.prefill_gib(LANE, batch, isl, prefix),
        "static_gen": lambda: memory.decode_gib(LANE, batch, isl, osl),
    }[mode]()
    verdict = memory.verdict(
        LANE, footprint, fraction=question.memory_fraction, static=True
    )
    _refuse_oom(question, verdict, layout)
    tpot_ms = float(metrics.tpot_ms[0])
    rate = float(metrics.requests_per_s[0])
    latency_ms = float(metrics.request_latency_ms[0])
    progress = question.tokens_per_step
    if progress > 1 and mode != "static_ctx" and tpot_ms > 0:
        before_ms, tpot_ms = latency_ms, tpot_ms / progress
        latency_ms = float(metrics.ttft_ms[0]) + tpot_ms * later
        rate *= before_ms / latency_ms
    per_request = {"static": float(osl), "static_ctx": 1.0, "static_gen": later}[mode]
    tokens_per_s = rate * per_request
    return PointEstimate(
        mode=mode,
        version=surfaces.pool.version,
        ttft_ms=float(metrics.ttft_ms[0]),
        tpot_ms=tpot_ms,
        request_latency_ms=latency_ms,
        requests_per_s=rate,
        tokens_per_s=tokens_per_s,
        tokens_per_s_per_gpu=tokens_per_s / layout.gpus,
        tokens_per_s_per_user=float(per_user(np.array(tpot_ms))),
        concurrency=concurrency,
        gpus=layout.gpus,
        memory_gib=_memory(footprint),
        kv_oom=bool(np.ravel(verdict.kv_oom)[0]),
        missing_gib=float(np.ravel(verdict.missing)[0]),
        schedule={
            "prefill_ms": float(prefill_ms[0]),
            "decode_ms": float(decode_ms[0]),
        },
    )


def estimate_disaggregated(
    question: Experiment,
    prefill: PoolChoice,
    decode: PoolChoice,
    compat: bool,
    cache: SurfaceCache,
) -> PointEstimate:
    """A prefill and a decode pool together."""
    p_surfaces, p_row = _role_row(question, "prefill", prefill, compat, cache)
    d_surfaces, d_row = _role_row(question, "decode", decode, compat, cache)
    found = from_pairs(
        question,
        p_row,
        d_row,
        LANE,
        LANE,
        np.array([prefill.workers]),
        np.array([decode.workers]),
    )
    if compat:
        found = table_precision(found)
    footprint = d_surfaces.memory.decode_gib(
        LANE, decode.batch, question.isl, question.osl
    )
    return PointEstimate(
        mode="disagg",
        version=p_surfaces.pool.version,
        gpus=int(found.gpus[0]),
        memory_gib=_memory(footprint),
        kv_oom=bool(Reason.KV_ROOM in (p_row.reason[0], d_row.reason[0])),
        missing_gib=float(max(p_row.missing_gib[0], d_row.missing_gib[0])),
        schedule={
            "prefill_requests_per_s": float(p_row.requests_per_s[0]),
            "decode_requests_per_s": float(d_row.requests_per_s[0]),
            "prefill_memory_gib": float(p_row.memory_gib[0]),
        },
        **_rates(found),
    )


def _role_row(
    question: Experiment,
    role: Role,
    choice: PoolChoice,
    compat: bool,
    cache: SurfaceCache,
) -> tuple[Surfaces, RolePoints]:
    _check_batch(choice.batch, choice.layout)
    surfaces = one_layout(question, role, choice.layout, cache)
    batch = np.array([float(choice.batch)])
    row = role_points(question, surfaces, LANE, role, batch, compat=compat)
    _require_fit(question, row, choice.layout)
    return surfaces, row


def _rates(table: AggregatedPoints | Deployments) -> dict[str, float]:
    return {name: float(getattr(table, name)[0]) for name in RATES}


def _memory(footprint: RunFootprint) -> dict[str, float]:
    return {
        name: float(np.ravel(part)[0]) for name, part in footprint._asdict().items()
    }


def _require_fit(
    question: Experiment, points: AggregatedPoints | RolePoints, layout: Layout
) -> None:
    if points.reason[0] == Reason.NO_DATA:
        raise InfeasibleError(
            f"{layout.label} with batch {points.batch[0]:.0f}: the measured tables of "
            f"{question.system} do not reach this point; use a smaller batch"
        )
    if points.reason[0] == Reason.MEMORY:
        _raise_oom(question, float(points.missing_gib[0]), layout)


def _refuse_oom(question: Experiment, verdict: RunVerdict, layout: Layout) -> None:
    if np.ravel(verdict.model_oom)[0]:
        _raise_oom(question, float(np.ravel(verdict.missing)[0]), layout)


def _raise_oom(question: Experiment, missing_gib: float, layout: Layout) -> None:
    raise InfeasibleError(
        f"{question.model} does not fit on {question.system} as {layout.label}: "
        f"{missing_gib:.2f} GiB ({np.ceil(missing_gib * GIB):.0f} bytes) per GPU are "
        "missing; use more GPUs per worker, lower precision or a smaller batch"
    )
