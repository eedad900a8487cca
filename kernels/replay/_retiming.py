"""A fixed schedule as a differentiable function of what its passes cost.

The schedule is data: which pass begins at which event, and which pass brings which token.
Instants are sums of prices along that order, so derivatives are exact as long as the
prices do not change the order; where they would (ties) they are one-sided.
"""

from __future__ import annotations

import abc
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float, Int

from .._arrays import Array


class PrefillWork(NamedTuple):
    """Prefill questions: `requests` prompts of mean length isl, `prefix` of it built."""

    requests: Int[Array, " passes"]
    isl_tokens: Int[Array, " passes"]
    prefix_tokens: Int[Array, " passes"]


class DecodeWork(NamedTuple):
    """Decode questions: one token for `requests` sequences of `context` tokens in all."""

    requests: Int[Array, " passes"]
    context_tokens: Int[Array, " passes"]


class Price(eqx.Module):
    """What passes cost, unrounded ms >= 0; leaves are what to differentiate in."""

    @abc.abstractmethod
    def __call__(
        self, prefill: PrefillWork, decode: DecodeWork
    ) -> tuple[Float[Array, " prefills"], Float[Array, " decodes"]]:
        """(ms of every prefill question, ms of every decode question)."""


class FixedPrice(Price):
    """Constant prices, ms."""

    prefill_ms: Float[Array, ""] | float
    decode_ms: Float[Array, ""] | float

    def __call__(self, prefill, decode):
        return (
            jnp.broadcast_to(self.prefill_ms, prefill.requests.shape),
            jnp.broadcast_to(self.decode_ms, decode.requests.shape),
        )


class PolynomialPrice(Price):
    """Polynomials as in `PolynomialSteps`; coefficients from the square down, ms.

    capacity_tokens: the pool of one rank. Speedups divide, > 0.
    """

    prefill: Float[Array, 3]
    decode: Float[Array, 3]
    capacity_tokens: Float[Array, ""] | float
    prefill_speedup: Float[Array, ""] | float = 1.0
    decode_speedup: Float[Array, ""] | float = 1.0

    def __call__(self, prefill, decode):
        new = prefill.isl_tokens - prefill.prefix_tokens
        tokens = (prefill.requests * new).astype("float64")
        used = decode.context_tokens.astype("float64") / self.capacity_tokens
        prefill_ms = _polynomial(self.prefill, tokens)
        decode_ms = _polynomial(self.decode, jnp.minimum(used, 1.0))
        return (
            jnp.maximum(prefill_ms, 0.0) / self.prefill_speedup,
            jnp.maximum(decode_ms, 1.0) / self.decode_speedup,
        )


def _polynomial(
    coefficients: Float[Array, 3], x: Float[Array, " n"]
) -> Float[Array, " n"]:
    second, first, constant = coefficients
    return (second * x + first) * x + constant


class Instants(NamedTuple):
    """`since_ms` after the end of an event; event 0 is the start of the clock."""

    event: Int[Array, "*n"]
    since_ms: Float[Array, "*n"]


class Schedule(eqx.Module):
    """One replayed run without its durations; made by `retimed`.

    Events are ends of passes (of all ranks of a worker, or of several equal passes in a
    row) and delays. An event begins `after` another; it lasts as long as its slowest
    rank. Questions go to the cell event * ranks + rank, padding to a cell that does not
    exist. Requests with output_tokens 0 are padding.
    """

    after: Instants
    prefill: PrefillWork
    prefill_cell: Int[Array, " prefills"]
    decode: DecodeWork
    decode_cell: Int[Array, " decodes"]
    arrival: Instants
    first_token: Instants
    last_token: Instants
    output_tokens: Int[Array, " reqs"]
    completed_requests: Int[Array, ""]
    end: Instants
    ranks: int = eqx.field(static=True)


def event_ends_ms(
    schedule: Schedule,
    prefill_ms: Float[Array, " prefills"],
    decode_ms: Float[Array, " decodes"],
) -> Float[Array, " events"]:
    """End of every event: end(i) = end(after(i)) + since(i) + max over ranks of prices."""
    events = schedule.after.event.size
    cells = events * schedule.ranks
    by_cell = jax.ops.segment_sum(prefill_ms, schedule.prefill_cell, cells)
    by_cell += jax.ops.segment_sum(decode_ms, schedule.decode_cell, cells)
    lasts_ms = jnp.max(by_cell.reshape(events, schedule.ranks), axis=1)

    # Sums along chains, doubled in length each time: no walk event by event.
    def double(carry, _):
        total_ms, before = carry
        return (total_ms + total_ms[before], before[before]), None

    start = schedule.after.since_ms + lasts_ms, jnp.asarray(schedule.after.event)
    doublings = (events - 1).bit_length()
    (ends_ms, _), _ = jax.lax.scan(double, start, length=doublings)
    return ends_ms


def schedule_metrics(schedule: Schedule, price: Price) -> dict[str, Float[Array, ""]]:
    """Means over completed requests and rates of a schedule under other prices.

    `price` maps `PrefillWork` and `DecodeWork` to (ms, ms): a `Price`, or any
    differentiable function of two arguments. Names and meanings are those of `summary`;
    at the prices of the run itself values differ by its rounding, <= 0.5 ns a price.
    Call and differentiate inside `aisim_jax.precision()`. Compile key: array shapes
    (powers of two).

    >>> with aisim_jax.precision():  # doctest: +SKIP
    ...     jax.grad(lambda p: schedule_metrics(schedule, p)["mean_ttft_ms"])(price)
    """
    prefill_ms, decode_ms = price(schedule.prefill, schedule.decode)
    ends_ms = event_ends_ms(schedule, prefill_ms, decode_ms)

    def at_ms(instants: Instants) -> Float[Array, "*n"]:
        return ends_ms[instants.event] + instants.since_ms

    arrival_ms = at_ms(schedule.arrival)
    first_ms, last_ms = at_ms(schedule.first_token), at_ms(schedule.last_token)
    output = schedule.output_tokens
    tpot_ms = (last_ms - first_ms) / jnp.maximum(output - 1, 1)
    duration_s = at_ms(schedule.end) / 1000.0

    def mean(values: Float[Array, " reqs"], least: int) -> Float[Array, ""]:
        counted = output >= least
        number = jnp.maximum(jnp.sum(counted, dtype="int32"), 1)
        return jnp.sum(jnp.where(counted, values, 0.0)) / number

    def rate(amount: Int[Array, ""]) -> Float[Array, ""]:
        lasted = duration_s > 0
        return jnp.where(lasted, amount / jnp.where(lasted, duration_s, 1.0), 0.0)

    return {
        "mean_ttft_ms": mean(first_ms - arrival_ms, 1),
        "mean_tpot_ms": mean(tpot_ms, 2),
        "mean_e2e_latency_ms": mean(last_ms - arrival_ms, 1),
        "duration_ms": duration_s * 1000.0,
        "request_throughput_rps": rate(schedule.completed_requests),
        "output_throughput_tok_s": rate(jnp.sum(output, dtype="int64")),
    }
