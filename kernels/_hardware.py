"""How step prices move with the hardware, utilisation frozen at the reference.

A measured latency is SOL(reference) / utilisation; on other hardware it becomes
SOL(hardware) / utilisation. Every limit of an operation grows by the slowdown of the
rate that bounds it, and the latency by the ratio of the larger limits.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int

from ._arrays import Array
from ._bounds import grid_sol_ms
from ._grid import GridStack, segment_lines


CONSTANT, MEMORY, BFLOAT16, INT8, FP8, FP4, INTRA_NODE, INTER_NODE = range(8)


class HardwareRates(NamedTuple):
    """Rates per GPU: bytes/s and FLOP/s. Zero marks a precision that is absent."""

    mem_bw_bytes_per_s: Float[Array, ""]
    bfloat16_flops: Float[Array, ""]
    int8_flops: Float[Array, ""]
    fp8_flops: Float[Array, ""]
    fp4_flops: Float[Array, ""]
    intra_node_bw_bytes_per_s: Float[Array, ""]
    inter_node_bw_bytes_per_s: Float[Array, ""]


def slowdowns(reference: HardwareRates, rates: HardwareRates) -> Float[Array, " eight"]:
    """Reference rate / rate, indexed by the constants above; 1 where a rate is absent."""
    old = jnp.stack([jnp.asarray(r, jnp.float64) for r in reference])
    new = jnp.stack([jnp.asarray(r, jnp.float64) for r in rates])
    ratio = jnp.where(old > 0, old / jnp.where(old > 0, new, 1.0), 1.0)
    return jnp.concatenate([jnp.ones(1), ratio])


class TokenComponents(NamedTuple):
    """Token operations of one table, apart: limits and latencies at every token count.

    measured = fixed + the part that scales. `compute_rate` / `link_rate` index slowdowns.
    side: 0 adds up; 1 and 2 are the two groups of an overlap, of which the slower counts.
    """

    measured_ms: Float[Array, "lanes terms pts"]
    compute_ms: Float[Array, "lanes terms pts"]
    memory_ms: Float[Array, "lanes terms pts"]
    link_ms: Float[Array, "lanes terms pts"]
    fixed_ms: Float[Array, "lanes terms"]
    compute_rate: Int[Array, "lanes terms"]
    link_rate: Int[Array, "lanes terms"]
    side: Int[Array, "lanes terms"]


def token_table_ms(
    parts: TokenComponents, slow: Float[Array, " eight"]
) -> Float[Array, "lanes pts"]:
    """The token tables on slowed hardware, ms."""
    reference = jnp.maximum(
        jnp.maximum(parts.compute_ms, parts.memory_ms), parts.link_ms
    )
    moved = jnp.maximum(
        parts.compute_ms * slow[parts.compute_rate][..., None],
        jnp.maximum(
            parts.memory_ms * slow[MEMORY],
            parts.link_ms * slow[parts.link_rate][..., None],
        ),
    )
    ratio = jnp.where(
        reference > 0, moved / jnp.where(reference > 0, reference, 1), 1.0
    )
    fixed = parts.fixed_ms[..., None]
    latency = fixed + (parts.measured_ms - fixed) * ratio

    def total(side: int) -> Float[Array, "lanes pts"]:
        chosen = (parts.side == side)[..., None]
        return jnp.sum(jnp.where(chosen, latency, 0.0), axis=1)

    return total(0) + jnp.maximum(total(1), total(2))


class GridComponents(NamedTuple):
    """What a grid needs beside its stack: values at keys and what bounds what.

    bound_rate[lane, coef] indexes slowdowns; extra_fixed is the launch part of extras.
    """

    value_ms: Float[Array, "lanes two outer inner"]
    bound_rate: Int[Array, "lanes coef"]
    extra_fixed_ms: Float[Array, " lanes"]


def moved_grid(
    grid: GridStack,
    parts: GridComponents,
    slow: Float[Array, " eight"],
    *,
    context: bool,
) -> GridStack:
    """The grid on slowed hardware: every point at SOL(hardware) / utilisation."""
    endless = jnp.isinf(grid.bound)  # no window: not a rate, and 0 * inf is NaN
    scaled = jnp.where(endless, 1.0, grid.bound) * slow[parts.bound_rate][:, None, :]
    bound = jnp.where(endless, grid.bound, scaled)
    outer = jnp.where(jnp.isfinite(grid.outer), grid.outer, 1.0)
    inner = jnp.where(jnp.isfinite(grid.inner), grid.inner, 1.0)

    def sol(coef: Float[Array, " coef"]) -> Float[Array, "outer inner"]:
        return grid_sol_ms(jnp, context, coef, outer[:, None], inner[None, :])

    over_cuts = jax.vmap(jax.vmap(sol))
    old, new = over_cuts(grid.bound[:, 1:]), over_cuts(bound[:, 1:])
    ratio = jnp.where(old > 0, new / jnp.where(old > 0, old, 1.0), 1.0)
    value = parts.value_ms * ratio
    memory_extra = grid.extra_ms - parts.extra_fixed_ms
    return grid._replace(
        line=segment_lines(jnp, value, grid.inner, grid.low, grid.high),
        bound=bound,
        extra_ms=parts.extra_fixed_ms + memory_extra * slow[MEMORY],
    )
