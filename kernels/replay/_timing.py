"""What a pass costs, in whole nanoseconds, from the integers that describe its work."""

from __future__ import annotations

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Float, Int

from .._arrays import Array, Values


def duration_ns(xp: Any, raw_ms: Values, speedup: Values) -> Values:
    """A price in ms as whole ns (ties to even), negative prices as 0.

    ns = rint(raw_ms / 1000 * 1e9), then rint(ns / speedup) where speedup > 0.
    """
    whole = xp.rint(xp.maximum(raw_ms, 0.0) / 1000.0 * 1e9)
    scaled = xp.rint(whole / xp.where(speedup > 0, speedup, 1.0))
    return xp.where(speedup > 0, scaled, whole).astype("int64")


class Steps(eqx.Module):
    """Prices of the two questions that a pass asks; the answers are added.

    Queries are int32 or int64 scalars (or arrays of one shape); answers int64 ns, 0 for
    an empty query (no requests, or nothing to compute). A price that no table answers is
    negative: the engine stops and reports it.
    """

    @abc.abstractmethod
    def prefill_ns(
        self, requests: Int[Array, "*q"], isl: Int[Array, "*q"], prefix: Int[Array, "*q"]
    ) -> Int[Array, "*q"]:
        """`requests` prompts of mean length isl, of which a mean of `prefix` is built."""

    @abc.abstractmethod
    def decode_ns(
        self, requests: Int[Array, "*q"], context: Int[Array, "*q"]
    ) -> Int[Array, "*q"]:
        """One token for `requests` sequences of `context` tokens in all (S)."""

    def decode_elapsed_ns(
        self, requests: Int[Array, ""], context: Int[Array, ""], passes: Int[Array, " k"]
    ) -> Int[Array, " k"]:
        """Time of the first passes[i] decode passes; passes counts 1, 2, ... k.

        The members stay, so the context grows by `requests` a pass.
        """
        grown = context.astype("int64") + requests.astype("int64") * (passes - 1)
        many = jnp.broadcast_to(requests, passes.shape)
        return jnp.cumsum(self.decode_ns(many, grown), dtype=jnp.int64)


class FixedSteps(Steps):
    """Constant prices, ns."""

    prefill: Int[Array, ""]
    decode: Int[Array, ""]

    def prefill_ns(self, requests, isl, prefix):
        return jnp.where((requests > 0) & (isl > prefix), self.prefill, 0)

    def decode_ns(self, requests, context):
        return jnp.where(requests > 0, self.decode, 0)

    def decode_elapsed_ns(self, requests, context, passes):
        return jnp.where(requests > 0, self.decode, 0) * passes.astype("int64")


class PolynomialSteps(Steps):
    """The built-in polynomials: prompt tokens, and the share of the pool in use.

    prefill, T = n (isl - prefix): 4.209989e-7 T^2 + 1.518344e-2 T + 16.50142 ms;
    decode, p = min(S / capacity, 1): max(1, -25.74 p^2 + 54.01 p + 5.74) ms.
    `capacity` is the pool of one rank in tokens; speedups 0 mean not scaled.
    """

    capacity: Int[Array, ""]
    speedup: Float[Array, ""]
    decode_speedup: Float[Array, ""]

    def prefill_ns(self, requests, isl, prefix):
        tokens = (requests * (isl - prefix)).astype("float64")
        raw = 4.209989e-7 * tokens * tokens + 1.518344e-2 * tokens + 16.50142
        priced = duration_ns(jnp, raw, self.speedup)
        return jnp.where((requests > 0) & (isl > prefix), priced, 0)

    def decode_ns(self, requests, context):
        p = jnp.minimum(context.astype("float64") / self.capacity, 1.0)
        raw = jnp.maximum(1.0, -25.74 * p * p + 54.01 * p + 5.74)
        priced = duration_ns(jnp, raw, self.decode_speedup)
        return jnp.where(requests > 0, priced, 0)
