"""One pass of a vLLM or TensorRT-LLM rank: running requests first, then the queue."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from .._arrays import Array
from ._block_admit import Admitting, admit_waiting
from ._block_drafts import make_room_for_drafts
from ._block_emit import SILENT, SPEAKING, emit
from ._block_parts import Parts, Rank, grow, preempt, publish, request_of
from ._block_pool import available
from ._block_state import BlockLane, BlockShape, blocks_for
from ._radix_branch import repeat, when


Count = Int[Array, ""]


class Work(NamedTuple):
    """What was decided, and the sums that price it.

    served: running requests reached; before: running ones before admissions; silent:
    ready requests without output.
    """

    served: Count
    before: Count
    admitted: Count
    rejected: Count
    preempted: Count
    prefill: Count
    through: Count
    prefix: Count
    decode: Count
    context: Count
    scheduled: Count
    committed: Count
    ready: Count
    silent: Count
    overflow: Bool[Array, ""]


def no_work() -> Work:
    """Nothing decided."""
    none = jnp.int32(0)
    counts = {name: none for name in Work._fields if name != "overflow"}
    return Work(**counts, overflow=jnp.bool_(False))


class _Serving(NamedTuple):
    place: Count
    budget: Count
    preempted: Count
    stop: Bool[Array, ""]
    parts: Parts


def serve_running(
    lane: BlockLane, shape: BlockShape, rank: Rank, parts: Parts, defer: Bool[Array, ""]
) -> _Serving:
    """Give running requests tokens in order, preempting where blocks run out."""
    limits, number = rank.limits, rank.number
    first = number * shape.slots

    def going(state: _Serving) -> Bool[Array, ""]:
        inside = state.place < state.parts.ranks.running[number]
        return inside & (state.budget > 0) & ~state.stop

    def serve(state: _Serving) -> _Serving:
        seqs = state.parts.seqs
        job = state.parts.ranks.slots[first + state.place]
        length, computed = seqs.length[job], seqs.computed[job]
        rest = length - computed
        skip = defer & (computed < lane.traffic.isl[request_of(shape, job)])
        stop = ~skip & (limits.chunked == 0) & (rest > state.budget)
        ahead = jnp.where(rest == 1, limits.drafts, 0)
        spent = jnp.where(skip | stop, 0, jnp.minimum(rest + ahead, state.budget))
        take = jnp.minimum(rest, spent)
        cover = computed + take
        held = seqs.blocks[job]
        need = jnp.maximum(blocks_for(cover, limits.block_size) - held, 0)
        need = jnp.where(skip | stop, 0, need)
        state = state._replace(stop=stop)

        def short(state: _Serving) -> Bool[Array, ""]:
            return ~state.stop & (available(state.parts.blocks, number) < need)

        def make_room(state: _Serving) -> _Serving:
            ranks = state.parts.ranks
            running = ranks.running[number]
            victim = jnp.where(limits.oldest_first > 0, 0, running - 1)
            earlier = victim < state.place
            returned = state.parts.seqs.taken[ranks.slots[first + victim]]
            return _Serving(
                place=state.place - earlier,
                budget=state.budget + jnp.where(earlier, returned, 0),
                preempted=state.preempted + 1,
                stop=victim == state.place,
                parts=preempt(lane, shape, rank, state.parts, victim),
            )

        def extend(state: _Serving) -> _Serving:
            state = repeat(short, make_room, state)
            by = jnp.where(state.stop, 0, need)
            parts = grow(lane, shape, rank, state.parts, job, by)
            return state._replace(parts=parts)

        state = when(need > 0, extend, state)
        kept = ~state.stop
        seqs = state.parts.seqs
        seqs = seqs._replace(
            taken=seqs.taken.put(job, take, kept),
            computed=seqs.computed.put(job, computed + take, kept),
        )
        parts = publish(lane, shape, rank, state.parts._replace(seqs=seqs), job)
        return state._replace(
            place=state.place + kept,
            budget=state.budget - jnp.where(kept, spent, 0),
            parts=parts,
        )

    none = jnp.int32(0)
    return repeat(
        going, serve, _Serving(none, limits.budget, none, jnp.bool_(False), parts)
    )


def plan_pass(
    lane: BlockLane,
    shape: BlockShape,
    rank: Rank,
    parts: Parts,
    group_pass: Count,
    now_ms: Float[Array, ""],
) -> tuple[Parts, Work]:
    """Schedule one pass; tokens come out when its length is known."""
    number, limits = rank.number, rank.limits
    first = number * shape.slots
    seqs, ranks = parts.seqs, parts.ranks
    running = ranks.running[number]
    due = (limits.interval > 1) & (group_pass % limits.interval != 0)
    due = due & (ranks.bound[number] == 0)

    def any_decodes(carry):
        at, found = carry
        job = ranks.slots.values[first + at]
        isl = lane.traffic.isl[request_of(shape, job)]
        return at + 1, found | (seqs.computed.values[job] >= isl)

    _, decodes = repeat(
        lambda carry: (carry[0] < running) & due & ~carry[1],
        any_decodes,
        (jnp.int32(0), jnp.bool_(False)),
    )
    defer = due & decodes
    for read in (ranks.slots, seqs.computed):
        read.reads.append(decodes.astype("int32"))
    served = serve_running(lane, shape, rank, parts, defer)
    before = served.parts.ranks.running[number]
    none, no = jnp.int32(0), jnp.bool_(False)

    def queue(state: Admitting) -> Admitting:
        return admit_waiting(lane, shape, rank, state, defer, now_ms)

    closed = served.preempted > 0
    nobody = Admitting(served.budget, none, none, no, no, served.parts)
    found = when(~closed, queue, nobody)
    parts = found.parts
    work = no_work()._replace(
        served=served.place,
        before=before,
        admitted=found.admitted,
        rejected=found.rejected,
        preempted=served.preempted,
        overflow=found.overflow,
    )
    if not shape.drafts:
        work = _summed(lane, shape, rank, parts, work, prompts=True, decodes=True)
    else:
        work = _summed(lane, shape, rank, parts, work, prompts=True, decodes=False)
        silent = jnp.where(work.silent > 0, SILENT, SPEAKING)
        parts = emit(lane, shape, rank, parts, now_ms, silent, SPEAKING)
        parts, lost = make_room_for_drafts(lane, shape, rank, parts)
        work = work._replace(preempted=work.preempted + lost)
        work = _summed(lane, shape, rank, parts, work, prompts=False, decodes=True)
        work = work._replace(silent=none)
    ranks = parts.ranks
    waits = ranks.waiting[number] >= 0
    full = ranks.bound.put(
        number, waits.astype("int32"), ~defer & (work.preempted == 0)
    )
    return parts._replace(ranks=ranks._replace(bound=full)), work


def _summed(
    lane: BlockLane,
    shape: BlockShape,
    rank: Rank,
    parts: Parts,
    work: Work,
    *,
    prompts: bool,
    decodes: bool,
) -> Work:
    """Sums over the running requests: what was computed, and who decodes."""
    seqs, ranks = parts.seqs, parts.ranks
    first = rank.number * shape.slots
    running = ranks.running[rank.number]
    pays_prefill = jnp.bool_(True) if shape.pools == 1 else rank.pool == 0

    def one(carry: tuple[Count, Work]) -> tuple[Count, Work]:
        at, work = carry
        job = ranks.slots.values[first + at]
        isl = lane.traffic.isl[request_of(shape, job)]
        length, computed = seqs.length.values[job], seqs.computed.values[job]
        taken = seqs.taken.values[job]
        ready = length == computed
        remains = lane.jobs.target[job] > length
        if prompts:
            reached = (at < work.served) | (at >= work.before)
            take = jnp.where(reached, taken, 0)
            before = computed - take
            through = jnp.minimum(computed, isl)
            prompt = pays_prefill & (through > before)
            work = work._replace(
                prefill=work.prefill + prompt,
                through=work.through + jnp.where(prompt, through, 0),
                prefix=work.prefix + jnp.where(prompt, before, 0),
                scheduled=work.scheduled + take,
                committed=work.committed + jnp.where(before < isl, take, 0),
                ready=work.ready + ready,
                silent=work.silent + (ready & ~remains),
            )
        if decodes:
            # Who is ready was reached in this pass.
            decode = ready & remains & ((length > isl) | (taken == 0))
            work = work._replace(
                decode=work.decode + decode,
                context=work.context + jnp.where(decode, length, 0),
            )
        return at + 1, work

    _, work = repeat(lambda carry: carry[0] < running, one, (jnp.int32(0), work))
    for read in (ranks.slots, seqs.length, seqs.computed, seqs.taken):
        read.reads.append(work.ready + work.context)
    return work
