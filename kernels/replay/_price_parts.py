"""What the prefill or the decode work of a pass costs, from measured operations.

A prefill asks for (n, isl, prefix), a decode for (n, mean length). Each is priced from a
table that covers every question a workload can ask, or from the compiled surface itself.
Tables share one layout: row n = 1, 2, ... of a flat array begins at start[n] and ends
before start[n + 1].
"""

from __future__ import annotations

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from .._arrays import Array
from .._steps import Options, StepStack, context_attention_ms, decode_ms, prefill_ms
from ._timing import nanoseconds, quotient


# No table answers. Far below 0, so that a sum with such a price in it is negative too.
UNPRICED_NS = -(1 << 50)


class PrefillPart(eqx.Module):
    """Prices of prefill work, ms; NaN where no table answers."""

    @abc.abstractmethod
    def ms(
        self, requests: Int[Array, ""], isl: Int[Array, ""], prefix: Int[Array, ""]
    ) -> Float[Array, ""]:
        """`requests` prompts of isl tokens of which `prefix` (< isl) are built."""

    @abc.abstractmethod
    def each_ms(
        self,
        requests: Int[Array, ""],
        tokens: Int[Array, ""],
        isl: Int[Array, " slots"],
        prefix: Int[Array, " slots"],
        mask: Bool[Array, " slots"],
    ) -> Float[Array, ""]:
        """`tokens` new tokens in all; attention averaged over the masked prompts."""


class DecodePart(eqx.Module):
    """Prices of decode work, ns; `UNPRICED_NS` where no table answers."""

    @abc.abstractmethod
    def ns(self, requests: Int[Array, ""], length: Int[Array, ""]) -> Int[Array, ""]:
        """One token for `requests` (>= 1) sequences of `length` tokens."""

    @abc.abstractmethod
    def elapsed_ns(
        self, requests: Int[Array, ""], length: Int[Array, ""], passes: Int[Array, ""]
    ) -> Int[Array, ""]:
        """Sum over `passes` decode passes, the first at `length` tokens."""


class FreeWork(PrefillPart, DecodePart):
    """Work that a role does not pay for."""

    def ms(self, requests, isl, prefix):
        return jnp.zeros(())

    def each_ms(self, requests, tokens, isl, prefix, mask):
        return jnp.zeros(())

    def ns(self, requests, length):
        return jnp.int64(0)

    def elapsed_ns(self, requests, length, passes):
        return jnp.int64(0)


class SurfacePrefill(PrefillPart):
    """Prefill from compiled tables; compile key: stack shapes and options."""

    stack: StepStack
    lane: Int[Array, ""]
    options: Options = eqx.field(static=True)

    def ms(self, requests, isl, prefix):
        n, full, held = _floats(requests, isl, prefix)
        return prefill_ms(self.stack, self.lane, n, full, held, self.options)

    def each_ms(self, requests, tokens, isl, prefix, mask):
        n, total = _floats(requests, tokens)

        def one(isl, prefix):
            new, held = _floats(isl - prefix, prefix)
            return context_attention_ms(
                self.stack, self.lane, n, new, held, self.options
            )

        attention = jax.vmap(one)(jnp.maximum(isl, prefix + 1), prefix)
        work = _token_work_ms(self.stack, self.lane, n, total)
        return work + jnp.sum(jnp.where(mask, attention, 0.0)) / n


class PrefillTable(PrefillPart):
    """Prefill from attention values [n][full length 1, 2, ...] and token tables, ms.

    price = tokens[n new] + logits[n] + attention[n][isl] (isl^2 - prefix^2) / isl^2
    + constant.
    """

    tokens_ms: Float[Array, " pts"]
    logits_ms: Float[Array, " logits"]
    attention_ms: Float[Array, " cells"]
    constant_ms: Float[Array, ""]
    start: Int[Array, " rows"]

    def _attention_ms(self, requests, isl, prefix):
        at, inside = _cell(self.start, requests, isl - 1)
        full, held = _floats(isl, prefix)
        share = (full * full - held * held) / (full * full)
        return jnp.where(inside, self.attention_ms[at] * share, jnp.nan)

    def _tokens_ms(self, requests, tokens):
        known = (tokens < self.tokens_ms.size) & (requests < self.logits_ms.size)
        work = self.tokens_ms[tokens] + self.logits_ms[requests] + self.constant_ms
        return jnp.where(known, work, jnp.nan)

    def ms(self, requests, isl, prefix):
        tokens = self._tokens_ms(requests, requests * (isl - prefix))
        return tokens + self._attention_ms(requests, isl, prefix)

    def each_ms(self, requests, tokens, isl, prefix, mask):
        attention = self._attention_ms(requests, jnp.maximum(isl, 1), prefix)
        total = jnp.sum(jnp.where(mask, attention, 0.0))
        return self._tokens_ms(requests, tokens) + total / requests


class SurfaceDecode(DecodePart):
    """Decode from compiled tables; compile key: stack shapes and options.

    rows: query rows of a request, 1 + draft tokens.
    """

    stack: StepStack
    lane: Int[Array, ""]
    rows: Int[Array, ""]
    options: Options = eqx.field(static=True)

    def ns(self, requests, length):
        rows, kv_len = _floats(requests * self.rows, length)
        raw = decode_ms(self.stack, self.lane, rows, kv_len, self.options)
        return priced_ns(raw, length)

    def elapsed_ns(self, requests, length, passes):
        def one(i, total):
            return total + self.ns(requests, length + i)

        return jax.lax.fori_loop(0, passes, one, jnp.int64(0))


class DecodeTable(DecodePart):
    """Decode from sums over lengths: sum_ns[n][k] prices lengths first ... first + k - 1.

    A pass is a difference of neighbours and k passes are a difference too, because the
    mean length of unchanged members grows by one a pass.
    """

    sum_ns: Int[Array, " cells"]
    start: Int[Array, " rows"]
    first: Int[Array, ""]

    def ns(self, requests, length):
        return self.elapsed_ns(requests, length, jnp.int32(1))

    def elapsed_ns(self, requests, length, passes):
        low, inside = _cell(self.start, requests, length - self.first)
        high, still = _cell(self.start, requests, length - self.first + passes)
        total = self.sum_ns[high] - self.sum_ns[low]
        return jnp.where(inside & still, total, UNPRICED_NS)


def _token_work_ms(
    stack: StepStack,
    lane: Int[Array, ""],
    batch: Float[Array, ""],
    new: Float[Array, ""],
) -> Float[Array, ""]:
    """Prefill work without attention: `new` tokens of `batch` requests, ms."""
    tokens, logits = stack.context_tokens_ms, stack.logits_ms
    known = (new < tokens.shape[1]) & (batch < logits.shape[1])
    work = tokens[lane, new.astype("int32")] + logits[lane, batch.astype("int32")]
    return jnp.where(known, work, jnp.nan)


def _cell(
    start: Int[Array, " rows"], row: Int[Array, ""], column: Int[Array, "*n"]
) -> tuple[Int[Array, "*n"], Bool[Array, "*n"]]:
    """Place of (row, column) in a flat table, and whether it is one of its cells."""
    known = (row >= 0) & (row < start.size - 1)
    row = jnp.clip(row, 0, start.size - 2)
    at = start[row] + column
    inside = known & (column >= 0) & (at < start[row + 1])
    return jnp.where(inside, at, 0).astype("int32"), inside


def _floats(*counts: Int[Array, "*n"]) -> list[Float[Array, "*n"]]:
    return [jnp.asarray(count).astype("float64") for count in counts]


def priced_ns(raw_ms: Float[Array, "*q"], count: Int[Array, "*q"]) -> Int[Array, "*q"]:
    """Whole ns; count: any count of the query (see `quotient`)."""
    unknown = jnp.isnan(raw_ms)
    known_ms = jnp.maximum(jnp.where(unknown, 0.0, raw_ms), 0.0)
    return jnp.where(
        unknown, UNPRICED_NS, nanoseconds(quotient(known_ms, 1000.0, count))
    )
