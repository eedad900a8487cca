"""What comes out of a pass: tokens, finished requests, prompts held for a hand-over."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Float, Int

from .._arrays import Array
from ._block_drafts import from_prefill, trim
from ._block_parts import Parts, Rank, give_back, missing_blocks, request_of
from ._block_queue import append
from ._block_state import BlockLane, BlockShape, Logs
from ._radix_branch import repeat, when


Count = Int[Array, ""]


def _burst(
    lane: BlockLane, shape: BlockShape, rank: Rank, drawn: Count, most: Count
) -> tuple[Count, Count]:
    """(tokens of one decode step, draws used so far): 1 + leading successes, <= most.

    Certainty draws nothing.
    """
    limits = rank.limits

    def going(carry: Any) -> Any:
        tried, _, _, alive = carry
        return alive & (tried < limits.drafts)

    def draw(carry: Any) -> Any:
        tried, drawn, count, _ = carry
        uniform = lane.draws[rank.number, jnp.minimum(drawn, shape.draws - 1)]
        rate = limits.acceptance[tried]
        certain = rate >= 1.0
        success = certain | (uniform < rate)
        return tried + 1, drawn + ~certain, count + success, success

    start = (jnp.int32(0), drawn, jnp.int32(1), jnp.bool_(True))
    _, drawn, count, _ = repeat(going, draw, start)
    return jnp.minimum(count, most), drawn


def log_tokens(
    lane: BlockLane,
    shape: BlockShape,
    logs: Logs,
    request: Count,
    token: Count,
    count: Count,
    at_ms: Float[Array, ""],
) -> Logs:
    """Write the instant of tokens token .. token + count - 1 of a request."""
    if not shape.tokens:
        return logs
    first = lane.jobs.first_token[request] + token

    def one(carry: Any) -> Any:
        at, times = carry
        return at + 1, times.at[first + at].set(at_ms)

    start = (jnp.int32(0), logs.token_ms)
    _, times = repeat(lambda carry: carry[0] < count, one, start)
    return logs._replace(token_ms=times)


def _end(
    lane: BlockLane, shape: BlockShape, rank: Rank, parts: Parts, job: Count
) -> Parts:
    """A running request has nothing left to say: it ends, or is held for a hand-over."""
    number = rank.number

    def hold(parts: Parts) -> Parts:
        seqs, ranks = parts.seqs, parts.ranks
        chain = (ranks.held, ranks.held_end, seqs.link)
        held, end, link = append(chain, number, job)
        promised = ranks.promised
        if shape.guaranteed:
            missing = missing_blocks(lane, shape, rank, seqs, job)
            promised = promised.add(number, -missing)
        return parts._replace(
            seqs=seqs._replace(link=link),
            ranks=ranks._replace(held=held, held_end=end, promised=promised),
        )

    def finish(parts: Parts) -> Parts:
        parts = give_back(lane, shape, rank, parts, job)
        seqs, ranks = parts.seqs, parts.ranks
        chain = (ranks.ended, ranks.ended_end, seqs.link)
        ended, end, link = append(chain, number, job)
        request = request_of(shape, job)
        output = seqs.length[job] - lane.traffic.isl[request]
        records = parts.records
        return parts._replace(
            seqs=seqs._replace(link=link),
            ranks=ranks._replace(ended=ended, ended_end=end),
            records=records._replace(output=records.output.at[request].set(output)),
        )

    if shape.pools == 1:
        return finish(parts)
    parts = when(rank.pool == 0, hold, parts)
    return when(rank.pool == 1, finish, parts)


def _speak(
    lane: BlockLane,
    shape: BlockShape,
    rank: Rank,
    parts: Parts,
    job: Count,
    left: Count,
    end_ms: Float[Array, ""],
) -> Parts:
    """One token of a request, or a burst of accepted drafts."""
    number, spare = rank.number, shape.reqs
    seqs, ranks, records = parts.seqs, parts.ranks, parts.records
    request = request_of(shape, job)
    length = seqs.length[job]
    token = length - lane.traffic.isl[request]
    count = jnp.int32(1)
    if shape.drafts:
        drawn = ranks.drawn[number]
        burst, used = _burst(lane, shape, rank, drawn, left)
        plain = from_prefill(lane, shape, seqs, job)
        count = jnp.where(plain, 1, burst)
        ranks = ranks._replace(
            drawn=ranks.drawn.put(number, jnp.where(plain, drawn, used))
        )
    first_at = jnp.where(token == 0, request, spare)
    second = (token <= 1) & (token + count >= 2)
    second_at = jnp.where(second, request, spare)
    last_at = jnp.where(count == left, request, spare)
    parts = parts._replace(
        seqs=seqs._replace(
            length=seqs.length.put(job, length + count),
            computed=seqs.computed.add(job, count - 1),
        ),
        ranks=ranks,
        records=records._replace(
            first_ms=records.first_ms.at[first_at].set(end_ms),
            second_ms=records.second_ms.at[second_at].set(end_ms),
            last_ms=records.last_ms.at[last_at].set(end_ms),
        ),
        logs=log_tokens(lane, shape, parts.logs, request, token, count, end_ms),
    )
    if not shape.drafts:
        return parts
    return when(
        rank.limits.drafts > 0,
        lambda parts: trim(lane, shape, rank, parts, job),
        parts,
    )


SILENT, SPEAKING, SWEEPS = 0, 1, 2


def emit(
    lane: BlockLane,
    shape: BlockShape,
    rank: Rank,
    parts: Parts,
    end_ms: Float[Array, ""],
    start: Count | int,
    stop: int = SWEEPS,
) -> Parts:
    """What comes out of a pass, in sweeps over the running requests from start to stop.

    Requests without output end in the first; in the second, all whose known tokens are
    computed get a token at end_ms, or are held.
    """
    number = rank.number
    first = number * shape.slots
    holds = jnp.bool_(False) if shape.pools == 1 else rank.pool == 0

    def sweep(carry: tuple[Count, Parts]) -> tuple[Count, Parts]:
        turn, parts = carry
        running = parts.ranks.running[number]

        def one(carry: tuple[Count, Count, Parts]) -> tuple[Count, Count, Parts]:
            at, kept, parts = carry
            seqs = parts.seqs
            job = parts.ranks.slots[first + at]
            length = seqs.length[job]
            ready = length == seqs.computed[job]
            left = lane.jobs.target[job] - length
            says = ready & (left > 0) & (turn == SPEAKING) & ~holds
            parts = when(
                says,
                lambda parts: _speak(lane, shape, rank, parts, job, left, end_ms),
                parts,
            )
            silent = parts.seqs.length[job] >= lane.jobs.target[job]
            done = ready & (silent | (holds & (turn == SPEAKING)))
            parts = when(done, lambda parts: _end(lane, shape, rank, parts, job), parts)
            ranks = parts.ranks
            slots = ranks.slots.put(first + kept, job, ~done & (kept < at))
            ranks = ranks._replace(slots=slots)
            return at + 1, kept + ~done, parts._replace(ranks=ranks)

        none = jnp.int32(0)
        _, kept, parts = repeat(
            lambda carry: carry[0] < running, one, (none, none, parts)
        )
        ranks = parts.ranks
        ranks = ranks._replace(running=ranks.running.put(number, kept))
        return turn + 1, parts._replace(ranks=ranks)

    begin = (jnp.asarray(start, jnp.int32), parts)
    return repeat(lambda carry: carry[0] < stop, sweep, begin)[1]
