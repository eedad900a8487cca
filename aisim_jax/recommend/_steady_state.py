"""Steady state of aggregated points as a pure function, for jax transforms."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from aisim_jax.kernels import Values, compose_aggregated
from aisim_jax.models import Layout

from ._parameters import COMPAT, SweepParameters
from ._schedule import Schedule, schedule_batch


class SteadyState(NamedTuple):
    """Latencies in ms and output tokens per second and GPU, shaped as the step times."""

    ttft_ms: Values
    tpot_ms: Values
    tokens_per_s_per_gpu: Values


def point_schedule(
    batch: Values,
    ctx_tokens: Values,
    *,
    isl: int,
    osl: int,
    backend: str,
    tokens_per_step: float = 1.0,
    parameters: SweepParameters = COMPAT,
) -> Schedule:
    """Which steps to price: `mixed_requests` beside ctx tokens, `decode_requests` alone.

    batch: requests per attention-DP rank; ctx_tokens: prefill tokens of a mixed step;
    both integers as data, of one shape
    """
    return schedule_batch(
        np.asarray(batch, np.float64),
        np.asarray(ctx_tokens, np.float64),
        isl,
        osl,
        tokens_per_step,
        parameters.engine(backend).schedule,
    )


def steady_state(
    mixed_ms: Values,
    decode_ms: Values,
    batch: Values,
    ctx_tokens: Values,
    *,
    isl: int,
    osl: int,
    layout: Layout,
    layers: int,
    backend: str,
    tokens_per_step: float = 1.0,
    parameters: SweepParameters = COMPAT,
) -> SteadyState:
    """Metrics of points from the times of the steps that `point_schedule` names.

    mixed_ms, decode_ms: JAX or NumPy arrays; differentiate with respect to them, or to
        the constants in `parameters` (a pytree), inside `aisim_jax.precision()`
    batch, ctx_tokens: as in `point_schedule`; the schedule is exact integer data, so
        gradients are those of the formulas at a fixed schedule

    Compile key under jit: shapes, isl, osl, layout, layers, backend.
    """
    xp = mixed_ms.__array_namespace__()
    schedule = point_schedule(
        batch,
        ctx_tokens,
        isl=isl,
        osl=osl,
        backend=backend,
        tokens_per_step=tokens_per_step,
        parameters=parameters,
    )
    steps = type(schedule.steps)(*(xp.asarray(count) for count in schedule.steps))
    metrics = compose_aggregated(
        mixed_ms,
        decode_ms,
        steps,
        xp.asarray(np.asarray(batch, np.float64)),
        osl - 1.0,
        tokens_per_step,
        float(layers),
        0.0,
        parameters.engine(backend).queue,
    )
    ranks = layout.dp * layout.pp
    return SteadyState(
        metrics.ttft_ms, metrics.tpot_ms, metrics.tokens_per_s * ranks / layout.gpus
    )
