"""Compiled deployments as a pytree, for jit, vmap and grad."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp

from ..kernels import _steps
from ..kernels._steps import Options, StepStack
from ..kernels._work import planned_work, scheduled_work


class OpLevelSurface(eqx.Module):
    """The compiled arrays of many deployments, a pytree for use under jax transforms.

    `stack` leaves are jax arrays; `options` are static. All functions take one query
    (lane and counts) and are meant to be vmapped inside `aisim_jax.precision()`.
    """

    stack: StepStack
    options: Options = eqx.field(static=True)

    def prefill_ms(self, lane, batch, isl, prefix):
        """Prefill of `batch` requests of isl tokens, `prefix` of them cached; ms."""
        return _steps.prefill_ms(self.stack, lane, batch, isl, prefix, self.options)

    def decode_ms(self, lane, rows, kv_len):
        """One decode step of `rows` rows at KV length kv_len; ms."""
        return _steps.decode_ms(self.stack, lane, rows, kv_len, self.options)

    def mixed_ms(self, lane, context_tokens, rows, isl, osl, prefix):
        """One step of `context_tokens` prefill tokens and `rows` decode rows; ms."""
        work = planned_work(jnp, context_tokens, rows, isl, osl, prefix)
        return _steps.mixed_ms(self.stack, lane, *work, self.options)

    def scheduled_ms(self, lane, requests, new, cached, decodes, kv):
        """One rank's pass from its five scheduled sums; ms (0 for an empty pass)."""
        n, nd = jnp.maximum(requests, 1.0), jnp.maximum(decodes, 1.0)
        held = jnp.floor(cached / n)
        prefill = self.prefill_ms(lane, n, jnp.floor(new / n) + held, held)
        decode = self.decode_ms(lane, nd, jnp.floor(kv / nd))
        work = scheduled_work(jnp, requests, new, cached, decodes, kv)
        both = _steps.mixed_ms(self.stack, lane, *work, self.options)
        has_decode = (decodes > 0) | (kv > 0)
        alone = jnp.where(has_decode, decode, 0.0)
        return jnp.where(new > 0, jnp.where(has_decode, both, prefill), alone)
