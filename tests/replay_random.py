"""Random small scenarios for engine against oracle: fixed shapes, drawn values."""

from __future__ import annotations

import numpy as np
from oracle.replay_timing import Fixed, Polynomial


REQUESTS = 24


def draw_workload(rng: np.random.Generator, *, closed: bool):
    """A closed loop, or arrivals from bursts, gaps and ties; lengths of many kinds."""
    from aisim_jax.traffic import Workload

    isl = rng.integers(1, rng.choice([8, 100, 400]) + 1, REQUESTS)
    osl = rng.integers(rng.choice([0, 1]), rng.choice([1, 6, 60]) + 1, REQUESTS)
    if rng.random() < 0.4:
        isl[:] = isl[0]
        osl[:] = osl[0]
    gaps = rng.exponential(rng.choice([1.0, 20.0, 200.0]), REQUESTS)
    arrival = np.cumsum(gaps) - gaps[0]
    if rng.random() < 0.4:
        # Instants at which passes of dyadic length end.
        arrival = np.floor(arrival / 2.5) * 2.5
    if rng.random() < 0.2:
        rng.shuffle(arrival)
    return Workload(
        arrival_ms=np.zeros(REQUESTS) if closed else arrival,
        isl_tokens=isl.astype(np.int32),
        osl_tokens=osl.astype(np.int32),
        session=np.arange(REQUESTS, dtype=np.int32),
        turn=np.zeros(REQUESTS, np.int32),
        delay_ms=np.zeros(REQUESTS),
        max_in_flight=int(rng.integers(1, 12)) if closed else None,
        max_virtual_time_ms=float(rng.choice([50.0, 500.0]))
        if rng.random() < 0.05
        else None,
    )


def draw_prices(rng: np.random.Generator, pool_tokens: int):
    """(oracle prices, engine prices): dyadic constants, zeros, or polynomials."""
    from aisim_jax.kernels.replay import FixedSteps, PolynomialSteps

    if rng.random() < 0.4:
        steps = PolynomialSteps(np.array(pool_tokens), np.array(0.0), np.array(0.0))
        return Polynomial(), steps
    prefill = float(rng.choice([0.0, 2.5, 10.0]))
    decode = float(rng.choice([0.0, 2.5, 3.0]))
    return Fixed(prefill, decode), FixedSteps(
        np.array(int(prefill * 1e6)), np.array(int(decode * 1e6))
    )


def draw_role(rng: np.random.Generator, workload, **settings):
    """Limits around what the workload needs, so that each of them binds at times."""
    from aisim_jax.replay import Role

    block = int(rng.choice([2, 16, 64]))
    need = workload.isl_tokens + workload.osl_tokens
    blocks = int(
        np.ceil(need.max() / block) * rng.choice([1.0, 1.5, 3.0, 20.0])
        + rng.integers(3)
    )
    pricing, steps = draw_prices(rng, block * blocks)
    role = Role(
        workers=settings.pop("workers", 1),
        ranks=settings.pop("ranks", 1),
        max_batched_tokens=int(rng.choice([16, 64, 300, 8192])),
        max_sequences=int(rng.choice([1, 3, 8])),
        block_size=block,
        num_blocks=blocks,
        steps=steps,
        max_model_len=int(rng.choice([50, 200])) if rng.random() < 0.2 else 100_000,
        **settings,
    )
    return role, pricing
