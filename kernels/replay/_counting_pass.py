"""One pass of a vLLM or TensorRT-LLM scheduler whose requests share no blocks."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from .._arrays import Array
from ._counting_state import (
    COMPUTED,
    ISL,
    LENGTH,
    REQUEST,
    TARGET,
    CountingShape,
    Lane,
    Limits,
    Slots,
    Worker,
    blocks_for,
)


class PassWork(NamedTuple):
    """What the scheduler decided; sums for the two price queries.

    steady: the next passes have the same members while nothing arrives or leaves.
    rejected: requests turned away. scheduled: tokens, recomputed ones too; committed:
    those of requests whose prompt was not complete. built: tokens of every slot before
    the pass.
    """

    prefill: Int[Array, ""]
    through_chunk: Int[Array, ""]
    prefix: Int[Array, ""]
    decode: Int[Array, ""]
    context: Int[Array, ""]
    steady: Bool[Array, ""]
    scheduled: Int[Array, ""]
    committed: Int[Array, ""]
    rejected: Int[Array, ""]
    preemptions: Int[Array, ""]
    admitted: Int[Array, ""]
    referenced: Int[Array, ""]
    slots_full: Bool[Array, ""]
    built: Int[Array, " slots"]


def total(values: Int[Array, " slots"] | Bool[Array, " slots"]) -> Int[Array, ""]:
    """Sum in int32."""
    return jnp.sum(values, dtype=jnp.int32)


def schedule_running(worker: Worker, limits: Limits) -> tuple[Worker, Array, Array]:
    """Give running requests tokens in admission order; preempt from the end if need be.

    Survivors are the longest prefix of m with sum(new blocks of the prefix) <= free +
    sum(blocks of the others). Returns the worker, its unused budget, and how many tokens
    each slot was given.
    """
    slots, running = worker.slots, worker.running
    length, computed = slots.counts[LENGTH], slots.counts[COMPUTED]
    index = jnp.arange(length.size, dtype=jnp.int32)
    here = index < running
    missing = jnp.where(here, length - computed, 0)
    before = jnp.cumsum(missing, dtype=jnp.int32) - missing
    take = jnp.clip(limits.budget - before, 0, missing)
    held = jnp.where(here, blocks_for(computed, limits.block_size), 0)
    needed = blocks_for(computed + take, limits.block_size)
    grown = jnp.where(here, needed - held, 0)
    held_through = jnp.cumsum(held, dtype=jnp.int32)
    free_after = limits.blocks - held_through
    fits = here & (jnp.cumsum(grown, dtype=jnp.int32) <= free_after)
    kept = total(fits)
    victims = running - kept

    def preempt(worker: Worker) -> Worker:
        # The earliest victim ends on top of the stack: slots are pushed last to first.
        depth = worker.preempted
        source = jnp.clip(running - 1 - (index - depth), 0, index.size - 1)
        fresh = (index >= depth) & (index < depth + victims)
        pushed = slots.moved(source)
        stack = Slots(
            jnp.where(fresh, pushed.counts.at[COMPUTED].set(0), worker.stack.counts),
            jnp.where(fresh, pushed.instants_ms, worker.stack.instants_ms),
        )
        return worker._replace(stack=stack, preempted=depth + victims)

    worker = jax.lax.cond(victims > 0, preempt, lambda worker: worker, worker)
    take = jnp.where(index < kept, take, 0)
    counts = slots.counts.at[COMPUTED].add(take)
    worker = worker._replace(slots=slots._replace(counts=counts), running=kept)
    return worker, limits.budget - total(take), take


class _Admission(NamedTuple):
    worker: Worker
    budget: Int[Array, ""]
    free: Int[Array, ""]
    promised: Int[Array, ""]
    prefill: Int[Array, ""]
    through_chunk: Int[Array, ""]
    rejected: Int[Array, ""]
    reached: Bool[Array, ""]
    slots_full: Bool[Array, ""]


def admit_waiting(
    worker: Worker,
    lane: Lane,
    shape: CountingShape,
    released: Int[Array, ""],
    budget: Int[Array, ""],
    start_ms: Float[Array, ""],
    closed: Bool[Array, ""],
) -> _Admission:
    """Admit from the head of the queue (preempted requests first) while all limits hold.

    closed: nobody is admitted in this pass.
    """
    limits, traffic = lane.limits, lane.traffic
    bs = limits.block_size
    here = jnp.arange(shape.slots, dtype=jnp.int32) < worker.running
    held = total(jnp.where(here, blocks_for(worker.slots.counts[COMPUTED], bs), 0))
    promised = jnp.int32(0)
    if shape.guaranteed:
        to_end = blocks_for(worker.slots.counts[TARGET], bs)
        promised = total(jnp.where(here, to_end, 0)) - held

    def waiting(state: _Admission) -> Bool[Array, ""]:
        worker = state.worker
        return ~state.reached & ((worker.preempted > 0) | (worker.head < released))

    def look(state: _Admission) -> _Admission:
        worker = state.worker
        back = worker.preempted > 0
        top = jnp.maximum(worker.preempted - 1, 0)
        saved, saved_ms = worker.stack.counts[:, top], worker.stack.instants_ms[:, top]
        number = jnp.where(back, saved[REQUEST], worker.head)
        isl, target = traffic.isl[number], traffic.target[number]
        length = jnp.where(back, saved[LENGTH], isl)
        whole = blocks_for(target if shape.guaranteed else length, bs)
        refuse = ~back & ((isl >= limits.max_model_len) | (whole > limits.blocks))
        slot_free = worker.running < limits.max_sequences
        take = jnp.minimum(length, state.budget)
        take = jnp.where((limits.chunked == 0) & (length > state.budget), 0, take)
        fits = whole <= state.free - state.promised
        admit = slot_free & ~refuse & fits & (take > 0)
        overflow = admit & (worker.running >= shape.slots)
        admit = admit & ~overflow
        refuse = refuse & slot_free
        fresh = jnp.stack([number, isl, length, take, target, jnp.int32(-2)])
        counts = jnp.where(back, saved.at[COMPUTED].set(take), fresh)
        fresh_ms = jnp.stack([start_ms, jnp.float64(jnp.nan)])
        instants_ms = jnp.where(back, saved_ms, fresh_ms)
        at = jnp.where(admit, worker.running, shape.slots)
        slots = Slots(
            worker.slots.counts.at[:, at].set(counts, mode="drop"),
            worker.slots.instants_ms.at[:, at].set(instants_ms, mode="drop"),
        )
        gone = (admit | refuse).astype(jnp.int32)
        worker = worker._replace(
            slots=slots,
            running=worker.running + admit,
            preempted=worker.preempted - gone * back,
            head=worker.head + gone * jnp.where(back, 0, limits.workers),
        )
        owned = blocks_for(take, bs)
        return _Admission(
            worker=worker,
            budget=state.budget - admit * take,
            free=state.free - admit * owned,
            promised=state.promised
            + (admit * (whole - owned) if shape.guaranteed else 0),
            prefill=state.prefill + admit,
            through_chunk=state.through_chunk + admit * jnp.minimum(take, isl),
            rejected=state.rejected + refuse,
            reached=~(admit | refuse),
            slots_full=state.slots_full | overflow,
        )

    none, no = jnp.int32(0), jnp.bool_(False)
    state = _Admission(
        worker, budget, limits.blocks - held, promised, none, none, none, closed, no
    )
    return jax.lax.while_loop(waiting, look, state)


def plan_pass(
    worker: Worker,
    lane: Lane,
    shape: CountingShape,
    released: Int[Array, ""],
    start_ms: Float[Array, ""],
) -> tuple[Worker, PassWork]:
    """Schedule one pass: running requests first, then the queue. Tokens are not out yet."""
    limits = lane.limits
    bs = limits.block_size
    slots, running = worker.slots, worker.running
    length, computed = slots.counts[LENGTH], slots.counts[COMPUTED]
    index = jnp.arange(shape.slots, dtype=jnp.int32)
    here = index < running
    missing = total(jnp.where(here, length - computed, 0))
    grown = total(jnp.where(here, blocks_for(length, bs), 0))
    # Everyone decodes and everyone fits: no order to keep, no sums over slots.
    simple = (
        (missing == running) & (running <= limits.budget) & (grown <= limits.blocks)
    )

    def decode_all(worker: Worker):
        counts = slots.counts.at[COMPUTED].set(jnp.where(here, length, computed))
        changed = worker._replace(slots=slots._replace(counts=counts))
        return changed, limits.budget - running, here.astype(jnp.int32)

    worker, budget, take = jax.lax.cond(
        simple, decode_all, lambda worker: schedule_running(worker, limits), worker
    )
    kept = worker.running
    entered = admit_waiting(
        worker, lane, shape, released, budget, start_ms, kept < running
    )
    worker = entered.worker
    counts = worker.slots.counts
    isl, length, computed = counts[ISL], counts[LENGTH], counts[COMPUTED]
    start = jnp.minimum(computed - take, isl)
    through = jnp.minimum(computed, isl)
    chunk = (index < kept) & (through > start)
    here = index < worker.running
    ready = here & (computed == length)
    decoding = ready & (length < counts[TARGET]) & (length > isl)
    work = PassWork(
        prefill=total(chunk) + entered.prefill,
        through_chunk=total(jnp.where(chunk, through, 0)) + entered.through_chunk,
        prefix=total(jnp.where(chunk, start, 0)),
        decode=total(decoding),
        context=total(jnp.where(decoding, length, 0)),
        steady=simple & (worker.running == running) & (entered.rejected == 0),
        scheduled=limits.budget - entered.budget,
        committed=budget
        - entered.budget
        + total(jnp.where((index < kept) & (computed - take < isl), take, 0)),
        rejected=entered.rejected,
        preemptions=running - kept,
        admitted=worker.running - kept,
        referenced=total(jnp.where(here, blocks_for(computed, bs), 0)),
        slots_full=entered.slots_full,
        built=jnp.where(index < kept, computed - take, 0),
    )
    return worker, work
