"""Compiled deployments as a pytree, for jit, vmap and grad."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Float

import aisim_jax.kernels as kernels

from ..kernels import Array, Options, StepStack, planned_work, scheduled_work


class OpLevelSurface(eqx.Module):
    """The compiled arrays of many deployments, a pytree for use under jax transforms.

    `stack` leaves are jax arrays; `options` are static. All functions take one query
    (a lane and whole-number counts) and are meant to be vmapped inside
    `aisim_jax.precision()`. Prices are ms, NaN where no table answers.
    """

    stack: StepStack
    options: Options = eqx.field(static=True)

    def prefill_ms(
        self, lane: ArrayLike, batch: ArrayLike, isl: ArrayLike, prefix: ArrayLike
    ) -> Float[Array, ""]:
        """Prefill of `batch` requests of isl tokens, `prefix` of them cached; ms."""
        batch, isl, prefix = _counts(batch, isl, prefix)
        return kernels.prefill_ms(
            self.stack, _lane(lane), batch, isl, prefix, self.options
        )

    def decode_ms(
        self, lane: ArrayLike, rows: ArrayLike, kv_len: ArrayLike
    ) -> Float[Array, ""]:
        """One decode step of `rows` rows at KV length kv_len; ms."""
        rows, kv_len = _counts(rows, kv_len)
        return kernels.decode_ms(self.stack, _lane(lane), rows, kv_len, self.options)

    def mixed_ms(
        self,
        lane: ArrayLike,
        context_tokens: ArrayLike,
        rows: ArrayLike,
        isl: ArrayLike,
        osl: ArrayLike,
        prefix: ArrayLike,
    ) -> Float[Array, ""]:
        """One step of `context_tokens` prefill tokens and `rows` decode rows; ms."""
        work = planned_work(jnp, *_counts(context_tokens, rows, isl, osl, prefix))
        return kernels.mixed_ms(self.stack, _lane(lane), *work, self.options)

    def scheduled_ms(
        self,
        lane: ArrayLike,
        requests: ArrayLike,
        new: ArrayLike,
        cached: ArrayLike,
        decodes: ArrayLike,
        kv: ArrayLike,
    ) -> Float[Array, ""]:
        """One rank's pass from its five scheduled sums; ms (0 for an empty pass)."""
        counts = _counts(requests, new, cached, decodes, kv)
        requests, new, cached, decodes, kv = counts
        n, nd = jnp.maximum(requests, 1.0), jnp.maximum(decodes, 1.0)
        held = jnp.floor(cached / n)
        prefill = self.prefill_ms(lane, n, jnp.floor(new / n) + held, held)
        decode = self.decode_ms(lane, nd, jnp.floor(kv / nd))
        work = scheduled_work(jnp, *counts)
        both = kernels.mixed_ms(self.stack, _lane(lane), *work, self.options)
        has_decode = (decodes > 0) | (kv > 0)
        alone = jnp.where(has_decode, decode, 0.0)
        return jnp.where(new > 0, jnp.where(has_decode, both, prefill), alone)


def _lane(lane: ArrayLike) -> jax.Array:
    return jnp.asarray(lane, jnp.int32)


def _counts(*values: ArrayLike) -> list[jax.Array]:
    return [jnp.asarray(value, jnp.float64) for value in values]
