"""One aggregated deployment as a differentiable function of hardware and constants."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from aisim_jax._errors import InvalidInputError
from aisim_jax.estimators import OpLevelModel
from aisim_jax.kernels import HardwareRates, halfway_kv_len

from ._parameters import COMPAT, SweepParameters
from ._steady_state import SteadyState, point_schedule, steady_state


def aggregated_metrics(
    model: OpLevelModel,
    *,
    requests: int,
    context_tokens: int,
    isl: int,
    osl: int,
    tokens_per_step: float = 1.0,
) -> tuple[HardwareRates, Callable[..., SteadyState]]:
    """(reference rates, steady state as a function of rates and sweep constants).

    The function takes `HardwareRates` and, optionally, `SweepParameters`. `requests` per
    attention rank and `context_tokens` per mixed step (both >= 1) stay fixed, so step
    counts are data; utilisation of every kernel is frozen at the reference hardware.
    Call and differentiate inside `aisim_jax.precision()`; results are arrays of one.

    >>> reference, metrics = aggregated_metrics(
    ...     model, requests=64, context_tokens=4000, isl=4000, osl=500
    ... )  # doctest: +SKIP
    >>> with aisim_jax.precision():  # doctest: +SKIP
    ...     jax.grad(lambda rates: metrics(rates).tpot_ms[0])(reference)
    """
    sizes = {
        "requests": requests,
        "context_tokens": context_tokens,
        "isl": isl,
        "osl": osl,
    }
    for name, value in sizes.items():
        if value < 1:
            raise InvalidInputError(f"{name}: {value} must be at least 1")
    backend = model.tables.backend
    batch, budget = np.array([float(requests)]), np.array([float(context_tokens)])
    where = {"isl": isl, "osl": osl, "backend": backend}
    plan = point_schedule(batch, budget, tokens_per_step=tokens_per_step, **where)
    draft_rows = model.nextn + 1
    mixed_rows = plan.mixed_requests * draft_rows
    decode_rows = np.maximum(plan.decode_requests, 1.0) * draft_rows
    kv_len = float(halfway_kv_len(np, isl, osl))
    # Price once through the model, which tabulates what lies beyond the grid.
    model.batch.mixed_ms(0, budget, plan.mixed_requests, isl, osl, 0)
    model.batch.decode_ms(0, decode_rows / draft_rows, kv_len)
    surface = model.hardware_surface(
        tokens=int(budget[0] + mixed_rows[0]), rows=int(decode_rows[0])
    )

    def metrics(
        rates: HardwareRates, parameters: SweepParameters = COMPAT
    ) -> SteadyState:
        moved = surface.at(rates)
        mixed_ms = moved.mixed_ms(
            0, budget[0], mixed_rows[0], float(isl), float(osl), 0.0
        )
        decode_ms = moved.decode_ms(0, decode_rows[0], kv_len)
        return steady_state(
            mixed_ms[None],
            decode_ms[None],
            batch,
            budget,
            layout=model.layout,
            layers=model.spec.layers,
            tokens_per_step=tokens_per_step,
            parameters=parameters,
            **where,
        )

    return surface.reference, metrics
