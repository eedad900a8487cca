"""What the radix engine logged, as admissions, passes and token instants."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from .._precision import precision
from ..kernels.replay import RadixAnswer
from ._outcome import Admissions, Passes, TokenTimes
from ._radix_pack import Packed


def admissions_of(packed: Packed, answer: RadixAnswer) -> Admissions:
    """Every admission in time order."""
    logs, used = answer.logs, int(answer.logs.admissions)
    row = logs.admitted[:used].astype(np.int64)
    pool = np.zeros(used, np.int64)
    if packed.shape.prefill_workers:
        half = packed.shape.reqs // 2
        pool = np.where(row >= half, 1, 2)
        row = row % half
    return Admissions(
        row,
        logs.admitted_ms[:used],
        pool,
        logs.admitted_reuse[:used].astype(np.int64),
    )


def passes_of(packed: Packed, answer: RadixAnswer) -> Passes:
    """Runs of equal passes of every rank."""
    logs, used = answer.logs, int(answer.logs.passes)
    rank, *sums = logs.pass_counts[:used].T.astype(np.int64)
    pool = np.zeros(used, np.int64)
    if packed.shape.prefill_workers:
        first = packed.shape.source_ranks
        pool = np.where(rank < first, 1, 2)
        rank = np.where(rank < first, rank, rank - first)
    return Passes(
        logs.pass_start_ms[:used],
        logs.pass_end_ms[:used],
        pool,
        rank,
        *sums,
    )


def token_times_of(
    packed: Packed, answer: RadixAnswer, done: Bool[np.ndarray, " reqs"]
) -> TokenTimes:
    """Tokens of completed requests: prefill passes log theirs; a running request has
    one of every decode pass of its rank between joining and leaving."""
    logs, used = answer.logs, int(answer.logs.joins)
    row = logs.join_row[:used].astype(np.int64)
    ends, first = _decode_ends(packed, answer)
    rank = np.maximum(answer.live.rank[row], 0)
    joined, left = logs.join_pass[:used], logs.leave_pass[:used]
    prefill = joined < 0
    runs = int(answer.decode_passes.max(initial=0)) + 1
    low = first[rank * runs + np.where(prefill, 0, joined)]
    high = first[rank * runs + np.where(prefill, 0, left)]
    count = np.where(prefill, 1, high - low)
    owner = np.repeat(row, count)
    offset = np.arange(owner.size) - np.repeat(np.cumsum(count) - count, count)
    place = np.repeat(low, count) + offset
    last = max(ends.size - 1, 0)
    decoded = ends[np.minimum(place, last)] if ends.size else np.zeros(owner.size)
    is_prefill = np.repeat(prefill, count)
    at_ms = np.where(is_prefill, np.repeat(logs.join_ms[:used], count), decoded)
    # Rows of the prefill pool, beyond those of the requests, speak to nobody.
    keep = (owner < done.size) & done[np.minimum(owner, done.size - 1)]
    owner, at_ms = owner[keep], at_ms[keep]
    order = np.lexsort((at_ms, owner))
    start = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=done.size))])
    return TokenTimes(at_ms[order], start)


def _decode_ends(
    packed: Packed, answer: RadixAnswer
) -> tuple[Float[np.ndarray, " passes"], Int[np.ndarray, " starts"]]:
    """End of every decode pass, rank by rank, and where each run of them begins.

    The second is indexed by rank * (most runs of a rank + 1) + run.
    """
    logs, used = answer.logs, int(answer.logs.passes)
    rank, passes, _, _, _, requests, context = logs.pass_counts[:used].T.astype(
        np.int64
    )
    decode = np.flatnonzero(requests > 0)
    decode = decode[np.argsort(rank[decode], kind="stable")]
    ranks = packed.shape.all_ranks
    count = passes[decode]
    begin = np.cumsum(count) - count
    total = int(count.sum())
    offset = np.arange(total) - np.repeat(begin, count)
    n = np.repeat(requests[decode], count)
    with precision():
        price_ns = np.asarray(
            packed.lane.steps.decode_ns(
                jnp.asarray(n),
                jnp.asarray(np.repeat(context[decode], count) + n * offset),
            )
        )
    ends = np.repeat(logs.pass_start_ms[decode], count)
    in_ms = price_ns / 1e9 * 1000.0
    # Ends add up one by one, as the run did; single passes end with their group.
    for step in range(int(count.max(initial=0))):
        at = begin[count > step] + step
        before = ends[at] if step == 0 else ends[at - 1]
        ends[at] = before + in_ms[at]
    single = count == 1
    ends[begin[single]] = logs.pass_seen_ms[decode][single]
    runs = int(answer.decode_passes.max(initial=0)) + 1
    first = np.zeros(ranks * runs, np.int64)
    ordered = rank[decode]
    run = np.arange(decode.size) - np.searchsorted(ordered, ordered)
    first[ordered * runs + run] = begin
    last = np.flatnonzero(np.diff(ordered, append=-1) != 0)
    first[ordered[last] * runs + run[last] + 1] = begin[last] + count[last]
    return ends, first
