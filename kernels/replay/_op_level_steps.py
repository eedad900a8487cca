"""What a pass costs from measured operations: prefill and decode parts, added."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Int

from .._arrays import Array
from ._price_parts import (
    UNPRICED_NS,
    DecodePart,
    DecodeTable,
    PrefillPart,
    priced_ns,
)
from ._timing import Steps, search_passes


class OpLevelSteps(Steps):
    """Prices of the operation-level estimator.

    A pass of n prompts is priced as n equal ones; a decode pass as n sequences of the
    whole mean length floor(S / n). The `_each` methods price every request at its own
    length instead. Compile key: the kinds of the two parts and their shapes.
    """

    prefill: PrefillPart
    decode: DecodePart

    def prefill_ns(self, requests, isl, prefix):
        def one(requests, isl, prefix):
            built = jnp.minimum(prefix, isl - 1)
            raw = self.prefill.ms(jnp.maximum(requests, 1), isl, built)
            work = (requests > 0) & (isl > prefix)
            return jnp.where(work, priced_ns(raw, isl), 0)

        return _each_query(one, requests, isl, prefix)

    def decode_ns(self, requests, context):
        def one(requests, context):
            n = jnp.maximum(requests, 1)
            return jnp.where(requests > 0, self.decode.ns(n, context // n), 0)

        return _each_query(one, requests, context)

    def decode_elapsed_ns(self, requests, context, passes):
        if not isinstance(self.decode, DecodeTable):
            return Steps.decode_elapsed_ns(self, requests, context, passes)
        n = jnp.maximum(requests, 1)
        mean = jnp.asarray(context // n, "int32")

        def one(count):
            return self.decode.elapsed_ns(n, mean, count)

        return jnp.where(requests > 0, jax.vmap(one)(passes), 0)

    def decode_until(self, requests, context, most, reached, window):
        if not isinstance(self.decode, DecodeTable):
            return Steps.decode_until(self, requests, context, most, reached, window)
        return search_passes(
            lambda passes: self.decode_elapsed_ns(requests, context, passes),
            most,
            reached,
        )

    def prefill_each_ns(
        self,
        isl: Int[Array, " slots"],
        prefix: Int[Array, " slots"],
        mask: Bool[Array, " slots"],
    ) -> Int[Array, ""]:
        """Prompts of the masked slots, each with attention of its own lengths.

        tokens(sum of new) + (1 / n) sum_i attention(n, isl_i, prefix_i)
        """
        n = jnp.sum(mask, dtype=jnp.int32)
        new = jnp.sum(jnp.where(mask, isl - prefix, 0), dtype=jnp.int32)
        raw = self.prefill.each_ms(jnp.maximum(n, 1), new, isl, prefix, mask)
        return jnp.where(new > 0, priced_ns(raw, new), 0)

    def decode_each_elapsed_ns(
        self,
        lengths: Int[Array, " slots"],
        mask: Bool[Array, " slots"],
        passes: Int[Array, ""],
    ) -> Int[Array, ""]:
        """`passes` decode passes of the masked slots, each priced at its own length.

        (1 / n) sum_i of the prices of n sequences of lengths_i, lengths_i + 1, ..., to
        the nearest ns; one pass is `passes` = 1.
        """
        n = jnp.sum(mask, dtype=jnp.int32)
        safe = jnp.maximum(n, 1)
        # Empty slots repeat the longest sequence, which the tables cover.
        length = jnp.where(mask, lengths, jnp.max(jnp.where(mask, lengths, 1)))

        def one(length):
            return self.decode.elapsed_ns(safe, length, passes)

        each = jnp.where(mask, jax.vmap(one)(length), 0)
        total = jnp.sum(each, dtype=jnp.int64)
        mean = (total + safe // 2) // safe
        return jnp.where(total < 0, UNPRICED_NS, mean)


def _each_query(function, *counts):
    """`function` of scalars at every query of equally shaped arrays."""
    shape = jnp.shape(counts[0])
    if shape == ():
        return function(*counts)
    flat = [jnp.reshape(count, (-1,)) for count in counts]
    return jnp.reshape(jax.vmap(function)(*flat), shape)
