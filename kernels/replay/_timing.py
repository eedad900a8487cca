"""What a pass costs, in whole nanoseconds, from the integers that describe its work."""

from __future__ import annotations

import abc
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from .._arrays import Array


# The built-in polynomials, ms, from the square down: of new prompt tokens, and of the
# share of the pool in use.
PREFILL_COEFFICIENTS = (4.209989e-7, 1.518344e-2, 16.50142)
DECODE_COEFFICIENTS = (-25.74, 54.01, 5.74)


def rounded(
    product: Float[Array, "*q"], speedup: Float[Array, "*s"]
) -> Float[Array, "*q"]:
    """The product itself, kept from fusing with an addition to one rounding.

    Prices that lie exactly between two nanoseconds are decided by their last bit. No
    compiler knows that a speedup (>= 0) is not negative.
    """
    bits = jax.lax.bitcast_convert_type(product, jnp.int64)
    hidden_zero = (speedup < 0).astype(jnp.int64)
    return jax.lax.bitcast_convert_type(bits ^ hidden_zero, jnp.float64)


def quotient(
    value: Float[Array, "*q"],
    divisor: Float[Array, ""] | float,
    count: Int[Array, "*q"],
) -> Float[Array, "*q"]:
    """value / divisor, correctly rounded.

    A divisor that is plainly the same for all elements would be turned into a factor;
    here it looks different where `count` < 0. No count is, but no compiler knows that.
    """
    return value / jnp.where(count < 0, 1.0, divisor)


def nanoseconds(seconds: Float[Array, "*q"]) -> Int[Array, "*q"]:
    """Nearest whole ns of a float64 as an exact rational, ties to even.

    1e9 s is split into two exact products, so that the rounding error of their sum is
    known and decides where the sum falls on a half.
    """
    bits = jax.lax.bitcast_convert_type(seconds, jnp.int64)
    high = jax.lax.bitcast_convert_type((bits >> 27) << 27, jnp.float64)
    first, second = high * 1e9, (seconds - high) * 1e9
    total = first + second
    error = second - (total - first)
    down = jnp.floor(total)
    toward = jnp.where(
        error > 0, down + 1.0, jnp.where(error < 0, down, jnp.rint(total))
    )
    return jnp.where(total - down == 0.5, toward, jnp.rint(total)).astype(jnp.int64)


def duration_ns(
    raw_ms: Float[Array, "*q"], speedup: Float[Array, ""], count: Int[Array, "*q"]
) -> Int[Array, "*q"]:
    """A price in ms as whole ns, negative prices as 0; scaled where speedup > 0.

    count: any count of the query (see `quotient`).
    """
    whole = nanoseconds(quotient(jnp.maximum(raw_ms, 0.0), 1000.0, count))
    in_s = quotient(whole.astype(jnp.float64), 1e9, count)
    divisor = jnp.where(speedup > 0, speedup, 1.0)
    scaled = nanoseconds(quotient(in_s, divisor, count))
    return jnp.where(speedup > 0, scaled, whole)


def search_passes(
    elapsed_ns: Callable[[Int[Array, " one"]], Int[Array, " one"]],
    most: Int[Array, ""],
    reached: Callable[[Int[Array, " one"]], Bool[Array, " one"]],
) -> tuple[Int[Array, ""], Int[Array, ""]]:
    """First number of passes in 1..most whose elapsed time `reached`, else most.

    Bisection, for prices whose sum over any number of passes is known.
    """

    def narrower(state):
        low, high = state
        return low < high

    def halve(state):
        low, high = state
        middle = (low + high) // 2
        enough = reached(elapsed_ns(middle[None]))[0]
        return jnp.where(enough, low, middle + 1), jnp.where(enough, middle, high)

    low, _ = jax.lax.while_loop(narrower, halve, (jnp.ones_like(most), most))
    return low, elapsed_ns(low[None])[0]


class Steps(eqx.Module):
    """Prices of the two questions that a pass asks; the answers are added.

    Queries are int32 or int64 scalars (or arrays of one shape); answers int64 ns, 0 for
    an empty query (no requests, or nothing to compute). A price that no table answers is
    negative: the engine stops and reports it.
    """

    @abc.abstractmethod
    def prefill_ns(
        self,
        requests: Int[Array, "*q"],
        isl: Int[Array, "*q"],
        prefix: Int[Array, "*q"],
    ) -> Int[Array, "*q"]:
        """`requests` prompts of mean length isl, of which a mean of `prefix` is built."""

    @abc.abstractmethod
    def decode_ns(
        self, requests: Int[Array, "*q"], context: Int[Array, "*q"]
    ) -> Int[Array, "*q"]:
        """One token for `requests` sequences of `context` tokens in all (S)."""

    def decode_elapsed_ns(
        self,
        requests: Int[Array, ""],
        context: Int[Array, ""],
        passes: Int[Array, " k"],
    ) -> Int[Array, " k"]:
        """Time of the first passes[i] decode passes; passes counts 1, 2, ... k.

        The members stay, so the context grows by `requests` a pass.
        """
        grown = context.astype("int64") + requests.astype("int64") * (passes - 1)
        many = jnp.broadcast_to(requests, passes.shape)
        return jnp.cumsum(self.decode_ns(many, grown), dtype=jnp.int64)

    def decode_until(
        self,
        requests: Int[Array, ""],
        context: Int[Array, ""],
        most: Int[Array, ""],
        reached: Callable[[Int[Array, " k"]], Bool[Array, " k"]],
        window: int,
    ) -> tuple[Int[Array, ""], Int[Array, ""]]:
        """Decode passes up to the first whose elapsed ns `reached` an event, <= most.

        Returns (passes, their ns), passes >= 1. `window` passes are priced at once.
        """
        numbers = jnp.arange(1, window + 1, dtype=jnp.int32)

        def going(state):
            done, _, found = state
            return ~found & (done < most)

        def stretch(state):
            done, elapsed, _ = state
            grown = context.astype("int64") + requests.astype("int64") * done
            times = elapsed + self.decode_elapsed_ns(requests, grown, numbers)
            stop = reached(times) | (done + numbers >= most)
            ended = jnp.any(stop)
            index = jnp.where(ended, jnp.argmax(stop), window - 1).astype("int32")
            return done + index + 1, times[index], ended

        start = jnp.int32(0), jnp.int64(0), jnp.bool_(False)
        done, elapsed, _ = jax.lax.while_loop(going, stretch, start)
        return done, elapsed


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

    def decode_until(self, requests, context, most, reached, window):
        return search_passes(
            lambda passes: self.decode_elapsed_ns(requests, context, passes),
            most,
            reached,
        )


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
        second, first, constant = PREFILL_COEFFICIENTS
        tokens = (requests * (isl - prefix)).astype("float64")
        square = rounded(second * (tokens * tokens), self.speedup)
        line = rounded(first * tokens, self.speedup)
        priced = duration_ns(square + line + constant, self.speedup, isl)
        return jnp.where((requests > 0) & (isl > prefix), priced, 0)

    def decode_ns(self, requests, context):
        capacity = self.capacity.astype(jnp.float64)
        used = quotient(context.astype(jnp.float64), capacity, context)
        p = jnp.minimum(used, 1.0)
        second, first, constant = DECODE_COEFFICIENTS
        scale = self.decode_speedup
        square = rounded(second * rounded(p * p, scale), scale)
        raw = jnp.maximum(1.0, square + rounded(first * p, scale) + constant)
        priced = duration_ns(raw, scale, context)
        return jnp.where(requests > 0, priced, 0)
