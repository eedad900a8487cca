"""Workloads that are made, not recorded."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from jaxtyping import Float, Int

from .._errors import InvalidInputError
from ._chacha import below
from ._contents import Unique
from ._shared_contents import SessionHistory, SharedPrefix
from ._workload import Tokenizer, Workload


_GROUP_SEED = 0  # the reference draws groups with this seed, whatever the load's seed


def synthetic(
    count: int,
    *,
    isl_tokens: int = 1024,
    osl_tokens: int = 128,
    cached_prefix_tokens: int = 0,
    random_range_ratio: float = 1.0,
    lengths_seed: int = 42,
    arrival_ms: Float[np.ndarray, " reqs"] | None = None,
    max_in_flight: int | None = None,
    tokenizer: Tokenizer | None = None,
) -> Workload:
    """`count` independent requests; all at 0 unless arrivals or a closed loop are given.

    cached_prefix_tokens: leading tokens that all prompts share. random_range_ratio: r in
    0 .. 1 draws uniform integer lengths from int(r * length), at least 1, to the length,
    all prompts first.

    >>> synthetic(3, isl_tokens=100, max_in_flight=2).size
    3
    """
    if not 0 <= random_range_ratio <= 1:
        raise InvalidInputError(
            f"random_range_ratio={random_range_ratio} must be in 0 .. 1; 1 = equal lengths"
        )
    draw = np.random.default_rng(lengths_seed)
    isl = _lengths(draw, count, isl_tokens, random_range_ratio)
    osl = _lengths(draw, count, osl_tokens, random_range_ratio)
    shared = cached_prefix_tokens
    return Workload(
        arrival_ms=_starts(count, arrival_ms),
        isl_tokens=isl,
        osl_tokens=osl,
        session=np.arange(count),
        turn=np.zeros(count, np.int64),
        delay_ms=np.zeros(count),
        max_in_flight=max_in_flight,
        contents=SharedPrefix(shared) if shared else Unique(),
        tokenizer=tokenizer,
    )


def sessions(
    count: int,
    *,
    block_size: int,
    turns: int = 4,
    new_isl_tokens: int = 1024,
    osl_tokens: int = 128,
    shared_prefix_ratio: float = 0.0,
    prefix_groups: int = 0,
    delay_ms: float = 0.0,
    arrival_ms: Float[np.ndarray, " sessions"] | None = None,
    max_in_flight: int | None = None,
    tokenizer: Tokenizer | None = None,
) -> Workload:
    """`count` sessions of `turns` requests; every prompt is the history plus new tokens.

    isl of turn k: new + k * (new + osl). The first round(blocks * shared_prefix_ratio)
    engine blocks of turn 0, halves up, are those of the session's group;
    blocks = ceil(new / block_size). delay_ms: from the end of a turn to the next one.

    >>> sessions(1, block_size=16, turns=3, new_isl_tokens=60, osl_tokens=10).isl_tokens
    array([ 60, 130, 200])
    """
    if shared_prefix_ratio > 0 and prefix_groups < 1:
        raise InvalidInputError(
            f"prefix_groups={prefix_groups} must be 1 or more with "
            f"shared_prefix_ratio={shared_prefix_ratio}; give the number of groups"
        )
    session = np.repeat(np.arange(count), turns)
    turn = np.tile(np.arange(turns), count)
    later = turn > 0
    blocks = math.floor(-(-new_isl_tokens // block_size) * shared_prefix_ratio + 0.5)
    group = np.zeros(count, np.int64)
    if blocks:
        group = np.array(below(prefix_groups, _GROUP_SEED, count), np.int64)
    return Workload(
        arrival_ms=np.where(
            later, np.nan, np.repeat(_starts(count, arrival_ms), turns)
        ),
        isl_tokens=new_isl_tokens + turn * (new_isl_tokens + osl_tokens),
        osl_tokens=np.full(session.size, osl_tokens),
        session=session,
        turn=turn,
        delay_ms=np.where(later, delay_ms, 0.0),
        max_in_flight=max_in_flight,
        contents=SessionHistory(
            session, group, min(blocks * block_size, new_isl_tokens)
        ),
        tokenizer=tokenizer,
    )


def with_arrivals(
    workload: Workload, arrival_ms: Float[np.ndarray, " sessions"]
) -> Workload:
    """The same requests in an open loop, session s arriving at arrival_ms[s].

    Gives times to a trace that has none, and draws a load anew for another seed:
    `with_arrivals(workload, poisson_ms(sessions, rate, seed))`.
    """
    first = workload.turn == 0
    if int(first.sum()) != arrival_ms.size:
        raise InvalidInputError(
            f"{arrival_ms.size} arrivals for {int(first.sum())} sessions; give one each"
        )
    begin = np.where(first, arrival_ms[workload.session], np.nan)
    return replace(workload, arrival_ms=begin, max_in_flight=None)


def kv_fraction_concurrency(
    fraction: float, kv_tokens: int, isl_tokens: int, osl_tokens: int
) -> int:
    """Requests in flight that fill a share of the KV cache; 0 if it holds not one.

    max(1, floor(fraction * floor(kv_tokens / (isl + floor(osl / 2))))).

    >>> kv_fraction_concurrency(0.5, 100_000, 1000, 500)
    40
    """
    sequences = kv_tokens // (isl_tokens + osl_tokens // 2)
    return max(1, math.floor(fraction * sequences)) if sequences else 0


def _starts(
    count: int, arrival_ms: Float[np.ndarray, " starts"] | None
) -> Float[np.ndarray, " starts"]:
    if arrival_ms is None:
        return np.zeros(count)
    if arrival_ms.size != count:
        raise InvalidInputError(
            f"{arrival_ms.size} arrivals for {count}; give one each"
        )
    return arrival_ms


def _lengths(
    draw: np.random.Generator, count: int, longest: int, ratio: float
) -> Int[np.ndarray, " reqs"]:
    if ratio == 1:
        return np.full(count, longest)
    return draw.integers(max(1, int(ratio * longest)), longest, count, endpoint=True)
