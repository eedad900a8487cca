"""What one replayed scenario answers, per request; times in ms of virtual time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int


UNFINISHED, COMPLETED, REJECTED = 0, 1, 2


class Admissions(NamedTuple):
    """Every admission in time order per request: row of the request, pool, reuse."""

    request: Int[np.ndarray, " admissions"]
    at_ms: Float[np.ndarray, " admissions"]
    pool: Int[np.ndarray, " admissions"]  # 0 aggregated, 1 prefill, 2 decode
    reused_tokens: Int[np.ndarray, " admissions"]


class Passes(NamedTuple):
    """Runs of equal passes: `passes` steps from start_ms to end_ms on one rank.

    The sums describe the first step of a run; in a run of several steps there is no
    prefill work and the context grows by decode_requests a step.
    """

    start_ms: Float[np.ndarray, " runs"]
    end_ms: Float[np.ndarray, " runs"]
    pool: Int[np.ndarray, " runs"]
    worker: Int[np.ndarray, " runs"]  # worker * ranks + rank
    passes: Int[np.ndarray, " runs"]
    prefill_requests: Int[np.ndarray, " runs"]
    sum_prompt_through_chunk: Int[np.ndarray, " runs"]
    sum_prefix: Int[np.ndarray, " runs"]
    decode_requests: Int[np.ndarray, " runs"]
    sum_context: Int[np.ndarray, " runs"]


class TokenTimes(NamedTuple):
    """Instants of all tokens of completed and unfinished requests, row by row (CSR)."""

    at_ms: Float[np.ndarray, " tokens"]
    start: Int[np.ndarray, " reqs_and_one"]


@dataclass(frozen=True)
class Handoff:
    """Prefill/decode instants, ms; NaN where a request did not get so far."""

    prefill_worker: Int[np.ndarray, " reqs"]
    prefill_admit_ms: Float[np.ndarray, " reqs"]
    source_held_ms: Float[np.ndarray, " reqs"]
    destination_reserved_ms: Float[np.ndarray, " reqs"]
    destination_activated_ms: Float[np.ndarray, " reqs"]
    decode_admit_ms: Float[np.ndarray, " reqs"]
    source_released_ms: Float[np.ndarray, " reqs"]


@dataclass(frozen=True)
class Replayed:
    """One scenario. NaN where an instant did not happen; -1 where a worker is unknown.

    worker: worker * ranks + rank (of the decode role when disaggregated). reused_tokens:
    maximum over admissions. engine: which engine and prefix-cache level answered.
    token_times: computed on demand; None when the run kept no log.
    """

    arrival_ms: Float[np.ndarray, " reqs"]
    first_admit_ms: Float[np.ndarray, " reqs"]
    first_token_ms: Float[np.ndarray, " reqs"]
    second_token_ms: Float[np.ndarray, " reqs"]
    last_token_ms: Float[np.ndarray, " reqs"]
    terminal_ms: Float[np.ndarray, " reqs"]
    status: Int[np.ndarray, " reqs"]
    output_tokens: Int[np.ndarray, " reqs"]
    worker: Int[np.ndarray, " reqs"]
    reused_tokens: Int[np.ndarray, " reqs"]
    first_reused_tokens: Int[np.ndarray, " reqs"]
    preemptions: int
    committed_prefill_tokens: int
    engine: str
    handoff: Handoff | None = None
    admissions: Callable[[], Admissions] | None = None
    passes: Callable[[], Passes] | None = None
    token_times: Callable[[], TokenTimes] | None = None
    telemetry: dict[str, float] = field(default_factory=dict)
