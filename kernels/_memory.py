"""Device-memory formulas of one rank: activations, KV pool, footprint, verdict.

`xp` is the array namespace (`jax.numpy` by default, `numpy` for the scalar path): one
formula serves both. Amounts of one call share a unit, bytes or GiB, in float64.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Bool, Float


Amount = Float[Any, "..."] | float
Flag = Bool[Any, "..."] | bool


class RunFootprint(NamedTuple):
    """Memory of one run on one rank, every field in the same unit."""

    total: Amount
    weights: Amount
    activations: Amount
    kv: Amount
    nccl: Amount
    other: Amount


class RunVerdict(NamedTuple):
    """Whether a run fits; `missing` is what it lacks, 0 where it fits."""

    model_oom: Flag
    kv_oom: Flag
    missing: Amount


def activation_bytes(
    tokens: Amount,
    bytes_per_token: Amount,
    workspace_bytes_per_token: Amount,
    floor_bytes: Amount,
    scale: Amount,
    *,
    xp: ModuleType = jnp,
) -> Amount:
    """Activation peak of a forward pass of `tokens` tokens.

    max(tokens * bytes_per_token + tokens * workspace_bytes_per_token, floor) * scale
    """
    peak = tokens * bytes_per_token + tokens * workspace_bytes_per_token
    return xp.maximum(peak, floor_bytes) * scale


def kv_pool(
    capacity: Amount, fraction: Amount, before: Amount, after: Amount
) -> Amount:
    """Memory left for the KV pool; negative when there is none.

    (capacity - before) * fraction - after: an engine that measures free memory first
    subtracts a load `before` the fraction, one that budgets the device `after` it.
    """
    return (capacity - before) * fraction - after


def run_footprint(
    tokens: Amount,
    sequences: Amount,
    tokens_per_sequence: Amount,
    *,
    weights: Amount,
    kv_bytes_per_token: Amount,
    activation_bytes_per_token: Amount,
    workspace_bytes_per_token: Amount,
    activation_floor_bytes: Amount,
    activation_scale: Amount,
    nccl: Amount,
    other: Amount,
    unit_bytes: float = 1.0,
    xp: ModuleType = jnp,
) -> RunFootprint:
    """Memory of a run that computes `tokens` at once and keeps `sequences` requests.

    total = weights + activations + kv + nccl + other, kv = sequences *
    tokens_per_sequence * kv_bytes_per_token. Arguments are bytes; the result is in
    units of `unit_bytes`.
    """
    activations = activation_bytes(
        tokens,
        activation_bytes_per_token,
        workspace_bytes_per_token,
        activation_floor_bytes,
        activation_scale,
        xp=xp,
    )
    kv = sequences * (tokens_per_sequence * kv_bytes_per_token)
    parts = [x / unit_bytes for x in (weights, activations, kv, nccl, other)]
    return RunFootprint(sum(parts[1:], parts[0]), *parts)


def run_verdict(
    footprint: RunFootprint,
    capacity: Amount,
    fraction: Amount,
    of_free: Flag,
    reserved: Amount,
    tolerance: Amount,
    *,
    xp: ModuleType = jnp,
) -> RunVerdict:
    """Compare a footprint with the device and with the engine's KV budget.

    Model out-of-memory: total >= capacity. KV out-of-memory (only where the model
    fits): kv > budget, where with non_kv = total - kv the budget is
    kv_pool(capacity, f, non_kv, 0) of free memory or kv_pool(capacity, f, 0, non_kv) of
    total memory, f = fraction * (1 - reserved) * (1 - tolerance).
    """
    non_kv = footprint.total - footprint.kv
    budget = run_kv_budget(
        capacity, non_kv, fraction, of_free, reserved, tolerance, xp=xp
    )
    model_oom = footprint.total >= capacity
    kv_oom = xp.logical_and(xp.logical_not(model_oom), footprint.kv > budget)
    missing = xp.maximum(footprint.total - capacity, footprint.kv - budget)
    fits = xp.logical_not(xp.logical_or(model_oom, kv_oom))
    return RunVerdict(model_oom, kv_oom, xp.where(fits, 0.0, missing))


def run_kv_budget(
    capacity: Amount,
    non_kv: Amount,
    fraction: Amount,
    of_free: Flag,
    reserved: Amount,
    tolerance: Amount,
    *,
    xp: ModuleType = jnp,
) -> Amount:
    """KV budget of a run; see `run_verdict` for the equation."""
    scaled = fraction * (1.0 - reserved) * (1.0 - tolerance)
    return xp.where(
        of_free,
        kv_pool(capacity, scaled, non_kv, 0.0),
        kv_pool(capacity, scaled, 0.0, non_kv),
    )
