"""State of the counting engine: one scenario whose requests share no blocks.

Without sharing, the blocks that a request holds follow from its computed tokens, so a
block pool is a number. Slots of a worker stay compacted in admission order.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Float, Int

from .._arrays import Array
from ._timing import Steps


RUNNING, FINISHED, STALLED, SLOTS_FULL, LOG_FULL, UNPRICED = 0, 1, 2, 3, 4, 5


class CountingShape(NamedTuple):
    """Static structure: one compilation per value (and per kind of `Steps`).

    workers: room for as many; a lane uses `Limits.workers` of them. guaranteed:
    TensorRT-LLM admission (blocks to completion reserved, no preemption). window:
    decode passes priced at once where prices have no closed sum. log: entries of the
    pass log (0: no log); runs: entries of the emission log. apart: `Steps` that
    price every request of a pass at its own length. side_by_side: lanes are vmapped.
    """

    workers: int
    slots: int
    guaranteed: bool
    closed_loop: bool
    window: int
    log: int
    runs: int
    apart: bool = False
    side_by_side: bool = False


class Limits(NamedTuple):
    """Numbers of one lane: engine limits per rank, and the load. Tokens, blocks, ms."""

    workers: Int[Array, ""]
    budget: Int[Array, ""]
    max_sequences: Int[Array, ""]
    block_size: Int[Array, ""]
    blocks: Int[Array, ""]
    max_model_len: Int[Array, ""]
    chunked: Int[Array, ""]
    requests: Int[Array, ""]
    in_flight: Int[Array, ""]
    until_ms: Float[Array, ""]


class Traffic(NamedTuple):
    """Requests in submission order; targets are isl + output after all cuts."""

    arrival_ms: Float[Array, " reqs"]
    isl: Int[Array, " reqs"]
    target: Int[Array, " reqs"]


REQUEST, ISL, LENGTH, COMPUTED, TARGET, EMITTED = range(6)
ADMIT, FIRST = range(2)


class Slots(NamedTuple):
    """Requests in slots (or on the preemption stack), packed so that one move is one copy.

    Rows of `counts`: request, isl, length, computed tokens, target length, pass of the
    last token; rows of `instants_ms`: first admission, first token.
    """

    counts: Int[Array, "six slots"]
    instants_ms: Float[Array, "two slots"]

    def moved(self, source: Int[Array, " slots"]) -> Slots:
        """Slot i taken from source[i]."""
        return Slots(self.counts[:, source], self.instants_ms[:, source])


class Worker(NamedTuple):
    """One engine: the running set, the preempted requests (a stack), the queue head.

    start of a pass = base_ms + offset_ns; end_ms: inf while idle. ending: requests that
    leave at end_ms. passes: passes begun so far.
    """

    slots: Slots
    running: Int[Array, ""]
    stack: Slots
    preempted: Int[Array, ""]
    head: Int[Array, ""]
    base_ms: Float[Array, ""]
    offset_ns: Int[Array, ""]
    end_ms: Float[Array, ""]
    ending: Int[Array, ""]
    passes: Int[Array, ""]


class Records(NamedTuple):
    """Per request, written when it leaves.

    Arrivals of a closed loop need no record: the k-th departure lets in the next request.
    """

    admit_ms: Float[Array, " reqs"]
    first_ms: Float[Array, " reqs"]
    last_ms: Float[Array, " reqs"]
    status: Int[Array, " reqs"]


class PassLog(NamedTuple):
    """One entry per event: `passes` equal passes; sums describe the first of them."""

    start_ms: Float[Array, " events"]
    end_ms: Float[Array, " events"]
    worker: Int[Array, " events"]
    passes: Int[Array, " events"]
    prefill: Int[Array, " events"]
    through_chunk: Int[Array, " events"]
    prefix: Int[Array, " events"]
    decode: Int[Array, " events"]
    context: Int[Array, " events"]


class RunLog(NamedTuple):
    """Starts of uninterrupted emissions: token `token` of `request` came in `at_pass`."""

    request: Int[Array, " runs"]
    at_pass: Int[Array, " runs"]
    token: Int[Array, " runs"]


class Admitted(NamedTuple):
    """Log of admissions after the first (preempted requests that came back)."""

    request: Int[Array, " runs"]
    at_ms: Float[Array, " runs"]


class Counters(NamedTuple):
    """Whole-scenario sums."""

    events: Int[Array, ""]
    runs: Int[Array, ""]
    readmissions: Int[Array, ""]
    preemptions: Int[Array, ""]
    prefill_tokens: Int[Array, ""]
    peak_blocks: Int[Array, ""]


class Scenario(NamedTuple):
    """Everything that changes while one lane runs; leaves of workers lead with workers.

    freed: requests that have left. chain: worker whose last pass had no length, or -1.
    turn: idle workers from this one on may still begin a pass at this instant, or -1.
    """

    workers: Worker
    now_ms: Float[Array, ""]
    released: Int[Array, ""]
    freed: Int[Array, ""]
    chain: Int[Array, ""]
    turn: Int[Array, ""]
    status: Int[Array, ""]
    records: Records
    log: PassLog
    runs: RunLog
    admitted: Admitted
    counters: Counters
    busy_ns: Int[Array, " workers"]


class Lane(NamedTuple):
    """Constants of one lane."""

    limits: Limits
    traffic: Traffic
    steps: Steps


def blocks_for(
    tokens: Int[Array, "*n"], block_size: Int[Array, ""]
) -> Int[Array, "*n"]:
    """Blocks that hold `tokens`: ceil(tokens / block_size).

    In floating point, exact below 2^31: hardware divides integers one by one.
    """
    return jnp.ceil(tokens.astype("float64") / block_size.astype("float64")).astype(
        "int32"
    )
