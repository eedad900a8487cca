"""The event loop of the counting engine: one scenario from its first to its last event."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from .._arrays import Array
from ._carry import packed_loop
from ._counting_pass import PassWork, plan_pass, total
from ._counting_records import Begun, logged, written
from ._counting_state import (
    COMPUTED,
    EMITTED,
    FINISHED,
    FIRST,
    LENGTH,
    LOG_FULL,
    REQUEST,
    RUNNING,
    SLOTS_FULL,
    STALLED,
    UNPRICED,
    Admitted,
    Counters,
    CountingShape,
    Lane,
    PassLog,
    Records,
    RunLog,
    Scenario,
    Slots,
    Worker,
    blocks_for,
)
from ._timing import quotient, search_passes


def instant_ms(
    base_ms: Float[Array, ""], offset_ns: Int[Array, "*n"]
) -> Float[Array, "*n"]:
    """A clock reading: the unrounded start plus whole nanoseconds, one rounding."""
    return base_ms + quotient(offset_ns.astype("float64"), 1e6, offset_ns)


def fresh_scenario(shape: CountingShape, lane: Lane) -> Scenario:
    """Time 0, nothing released (a closed loop: the first requests are in)."""
    requests = lane.traffic.isl.size
    slots = Slots(jnp.zeros((6, shape.slots), jnp.int32), jnp.zeros((2, shape.slots)))
    zero, zero64, origin = jnp.int32(0), jnp.int64(0), jnp.float64(0.0)
    never = jnp.float64(jnp.inf)
    worker = Worker(slots, zero, slots, zero, zero, origin, zero64, never, zero, zero)
    workers = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, (shape.workers, *leaf.shape)), worker
    )
    # Workers beyond the count of the lane never have a request to look at.
    numbers, count = jnp.arange(shape.workers, dtype=jnp.int32), lane.limits.workers
    nobody = jnp.int32(2**30)
    unknown = jnp.full(requests, jnp.nan)
    released = zero
    if shape.closed_loop:
        released = jnp.minimum(lane.limits.in_flight, lane.limits.requests)
    logged, runs = jnp.zeros(shape.log, jnp.int32), jnp.zeros(shape.runs, jnp.int32)
    logged_ms, status = jnp.zeros(shape.log), jnp.zeros(requests, jnp.int8)
    return Scenario(
        workers=workers._replace(head=jnp.where(numbers < count, numbers, nobody)),
        now_ms=origin,
        released=released,
        freed=zero,
        chain=jnp.int32(-1),
        turn=jnp.int32(0 if shape.closed_loop else -1),
        status=jnp.int32(RUNNING),
        records=Records(unknown, unknown, unknown, status),
        log=PassLog(logged_ms, logged_ms, *([logged] * 7)),
        runs=RunLog(runs, runs, runs),
        admitted=Admitted(runs, jnp.zeros(shape.runs)),
        counters=Counters(zero, zero, zero, zero, zero64, zero),
        busy_ns=jnp.zeros(shape.workers, jnp.int64),
    )


def _release(
    shape: CountingShape, lane: Lane, state: Scenario, allow: Bool[Array, ""]
) -> Scenario:
    """Let in what arrives by now: as many as left a closed loop, or by the clock."""
    now = state.now_ms
    if shape.closed_loop:
        released = jnp.where(allow, _allowed(lane, state), state.released)
        return state._replace(released=released)

    def due(count):
        return allow & (_next_arrival_ms(lane, count) <= now)

    released = jax.lax.while_loop(due, lambda count: count + 1, state.released)
    return state._replace(released=released)


def _allowed(lane: Lane, state: Scenario) -> Int[Array, ""]:
    """Requests of a closed loop that may have entered by now."""
    return jnp.minimum(lane.limits.in_flight + state.freed, lane.limits.requests)


def _next_arrival_ms(lane: Lane, count: Int[Array, ""]) -> Float[Array, ""]:
    arrival = lane.traffic.arrival_ms
    known = arrival[jnp.minimum(count, arrival.size - 1)]
    return jnp.where(count < lane.limits.requests, known, jnp.inf)


def _limit_ms(
    shape: CountingShape, lane: Lane, state: Scenario, worker: Worker, number: Array
) -> Float[Array, ""]:
    """The instant from which an arrival could change the passes of this worker."""
    receptive = (worker.running < lane.limits.max_sequences) & (worker.preempted == 0)
    receptive = receptive & (worker.head >= state.released)
    if shape.closed_loop:
        # Requests that left in a pass of no length let others in after this pass.
        door = _allowed(lane, state) > state.released
        door_ms = jnp.where(door, state.now_ms, jnp.inf)
        if shape.workers == 1:
            return jnp.where(receptive, door_ms, jnp.inf)
        others = jnp.arange(shape.workers) != number
        heads = state.workers
        idle = jnp.isinf(heads.end_ms)
        begins = idle & (
            (heads.running > 0) | (heads.preempted > 0) | (heads.head < state.released)
        )
        ends = jnp.where(begins, state.now_ms, heads.end_ms)
        soonest_ms = jnp.minimum(jnp.min(jnp.where(others, ends, jnp.inf)), door_ms)
        return jnp.where(receptive, soonest_ms, jnp.inf)
    return jnp.where(receptive, _next_arrival_ms(lane, worker.head), jnp.inf)


def _pass_length(
    shape: CountingShape,
    lane: Lane,
    worker: Worker,
    work: PassWork,
    steady: Bool[Array, ""],
    limit_ms: Float[Array, ""],
) -> tuple[Int[Array, ""], Int[Array, ""]]:
    """(equal passes, their ns): one pass, or a decode stretch up to the next event."""
    limits, steps = lane.limits, lane.steps
    _, isl, length, computed, target, _ = worker.slots.counts
    here = jnp.arange(shape.slots) < worker.running
    through = jnp.minimum(computed, isl)
    chunk = here & (through > work.built)
    decoding = here & (computed == length) & (length < target) & (length > isl)

    def prefill_ns() -> Int[Array, ""]:
        if shape.apart:
            return steps.prefill_each_ns(through, work.built, chunk)
        n = jnp.maximum(work.prefill, 1)
        return steps.prefill_ns(work.prefill, work.through_chunk // n, work.prefix // n)

    def decode_ns(passes: Int[Array, ""]) -> Int[Array, ""]:
        if shape.apart:
            return steps.decode_each_elapsed_ns(length, decoding, passes)
        return steps.decode_ns(work.decode, work.context)

    def single():
        none = jnp.int64(0)
        prefill = jax.lax.cond(work.prefill > 0, prefill_ns, lambda: none)
        decode = jax.lax.cond(
            work.decode > 0, lambda: decode_ns(jnp.int32(1)), lambda: none
        )
        priced = (prefill >= 0) & (decode >= 0)
        return jnp.int32(1), jnp.where(priced, prefill + decode, -1)

    def stretch():
        remaining = jnp.where(here, target - length, jnp.int32(2**31 - 1))
        # Vmapped, both branches run: a lane that is not steady must not look far.
        most = jnp.where(steady, jnp.min(remaining), 1)

        def fits(passes: Int[Array, ""]) -> Bool[Array, ""]:
            held = blocks_for(length + passes - 1, limits.block_size)
            return total(jnp.where(here, held, 0)) <= limits.blocks

        def horizon():
            def halve(bounds):
                low, high = bounds
                middle = (low + high + 1) // 2
                inside = fits(middle)
                return jnp.where(inside, middle, low), jnp.where(
                    inside, high, middle - 1
                )

            low, _ = jax.lax.while_loop(
                lambda bounds: bounds[0] < bounds[1], halve, (jnp.int32(1), most)
            )
            return low

        most = jax.lax.cond(fits(most), lambda: most, horizon)

        def reached(ns: Int[Array, " k"]) -> Bool[Array, " k"]:
            return instant_ms(worker.base_ms, worker.offset_ns + ns) >= limit_ms

        if shape.apart:
            return search_passes(lambda k: decode_ns(k[0])[None], most, reached)
        return steps.decode_until(
            work.decode, work.context, most, reached, shape.window
        )

    return jax.lax.cond(steady, stretch, single)


def _begin(
    shape: CountingShape, lane: Lane, state: Scenario, number: Int[Array, ""]
) -> Begun:
    """Schedule worker `number` at now and carry its requests to the end of the pass."""
    now = state.now_ms
    worker = jax.tree.map(lambda leaf: leaf[number], state.workers)
    follows = instant_ms(worker.base_ms, worker.offset_ns) == now
    worker = worker._replace(
        base_ms=jnp.where(follows, worker.base_ms, now),
        offset_ns=jnp.where(follows, worker.offset_ns, 0),
    )
    limit_ms = _limit_ms(shape, lane, state, worker, number)
    waiting = worker.preempted
    worker, work = plan_pass(worker, lane, shape, state.released, now)
    scheduled = worker.slots
    _, isl, length, computed, target, emitted = scheduled.counts
    index = jnp.arange(shape.slots, dtype=jnp.int32)
    here = index < worker.running
    ready = here & (computed == length)
    steady = work.steady & (work.prefill == 0) & (work.decode == worker.running)
    steady = steady & (worker.running > 0)
    passes, ns = _pass_length(shape, lane, worker, work, steady, limit_ms)
    offset_ns = worker.offset_ns + ns
    end_ms = instant_ms(worker.base_ms, offset_ns)
    emits = ready & (length < target)
    grown = jnp.where(emits, passes, 0)
    finish = ready & (length + grown >= target)
    leaving = total(finish)
    counts = scheduled.counts
    counts = counts.at[LENGTH].add(grown)
    counts = counts.at[COMPUTED].add(jnp.maximum(grown - 1, 0))
    counts = counts.at[EMITTED].set(
        jnp.where(emits, worker.passes + passes - 1, emitted)
    )
    first = scheduled.instants_ms[FIRST]
    first = jnp.where(emits & (length == isl), end_ms, first)
    slots = Slots(counts, scheduled.instants_ms.at[FIRST].set(first))

    def part(slots: Slots) -> Slots:
        stay = here & ~finish
        front = jnp.cumsum(stay, dtype=jnp.int32) - 1
        behind = index - front - 1 + worker.running - leaving
        place = jnp.where(stay, front, jnp.where(finish, behind, index))
        return slots.moved(jnp.zeros_like(index).at[place].set(index))

    slots = jax.lax.cond(leaving > 0, part, lambda slots: slots, slots)
    return Begun(
        worker=worker._replace(
            slots=slots,
            running=worker.running - leaving,
            offset_ns=offset_ns,
            end_ms=end_ms,
            ending=leaving + work.rejected,
            passes=worker.passes + passes,
        ),
        work=work,
        passes=passes,
        ns=ns,
        leaving=leaving,
        resumed=emits & (emitted != worker.passes - 1),
        scheduled=scheduled,
        returned=waiting + work.preemptions - worker.preempted,
        changed=work.scheduled + work.rejected + work.preemptions + leaving > 0,
    )


def upcoming_ms(shape: CountingShape, lane: Lane, state: Scenario) -> Float[Array, ""]:
    """The instant of the next event; inf when nothing is left to happen."""
    arrival = jnp.float64(jnp.inf)
    if not shape.closed_loop:
        arrival = _next_arrival_ms(lane, state.released)
    upcoming = jnp.minimum(jnp.min(state.workers.end_ms), arrival)
    busy = (state.chain >= 0) | (state.turn >= 0)
    if shape.closed_loop:
        # Requests that left during passes of no length make room at this instant.
        busy = busy | (_allowed(lane, state) > state.released)
    return jnp.where(busy, state.now_ms, upcoming)


def next_event(
    shape: CountingShape, lane: Lane, state: Scenario, active: Bool[Array, ""] | bool
) -> Scenario:
    """Deliver what ends at the next instant, let in arrivals, start one idle worker.

    At one instant all pass ends come first, then arrivals, then idle workers take turns
    in ascending order; a pass of no length is followed by the next of its worker before
    anything else.
    """
    chained, none = state.chain >= 0, shape.workers
    taking_turns = chained | (state.turn >= 0)
    workers, now = state.workers, upcoming_ms(shape, lane, state)
    ended = jnp.argmin(workers.end_ms).astype("int32")
    ends = ~taking_turns & (workers.end_ms[ended] <= now)
    ended = jnp.where(chained, state.chain, ended)
    ends = (ends | chained) & active
    freed = state.freed + jnp.where(ends, workers.ending[ended], 0)
    end_ms = workers.end_ms.at[jnp.where(ends, ended, none)].set(jnp.inf, mode="drop")
    state = state._replace(
        now_ms=now, freed=freed, workers=workers._replace(end_ms=end_ms)
    )
    more = ~taking_turns & (jnp.min(end_ms) <= now)
    state = _release(shape, lane, state, ~taking_turns & ~more & active)
    workers, counters = state.workers, state.counters
    work = (workers.running > 0) | (workers.preempted > 0)
    idle = jnp.isinf(end_ms) & (work | (workers.head < state.released)) & ~more
    idle = idle & active
    everyone = jnp.arange(none, dtype=jnp.int32)
    first = jnp.where(chained, state.chain, jnp.maximum(state.turn, 0))
    able = idle & jnp.where(chained, everyone == first, everyone >= first)
    number = jnp.argmax(able).astype("int32")
    start = able[number]
    begun = jax.lax.cond(
        start,
        lambda: _begin(shape, lane, state, number),
        lambda: _nothing(shape, state, number),
    )
    head = workers.head[number]
    state = state._replace(records=written(shape, lane, state.records, head, begun))
    full = jnp.bool_(False)
    if shape.log:
        state = logged(shape, state, number, begun, start)
        resumed = jnp.sum(begun.resumed, dtype=jnp.int32)
        counters = counters._replace(
            runs=counters.runs + resumed,
            readmissions=counters.readmissions + begun.returned,
        )
        full = (counters.events + 1 >= shape.log) | (counters.runs > shape.runs)
        full = full | (counters.readmissions > shape.runs)
    status = jnp.where(full, LOG_FULL, RUNNING)
    status = jnp.where(begun.work.slots_full, SLOTS_FULL, status)
    status = jnp.where(start & ~begun.changed, STALLED, status)
    status = jnp.where(begun.ns < 0, UNPRICED, status)
    place = jnp.where(start, number, none)
    chain = start & (begun.ns == 0) & begun.changed
    last = jnp.where(start, number, first)
    waits = jnp.any(idle & (everyone > last)) & (start | chained)
    return state._replace(
        workers=jax.tree.map(
            lambda all_, one: all_.at[place].set(one, mode="drop"),
            workers,
            begun.worker,
        ),
        chain=jnp.where(chain, number, -1),
        turn=jnp.where(waits, last + 1, -1),
        status=jnp.where(active, status, state.status).astype("int32"),
        counters=counters._replace(
            events=counters.events + start,
            preemptions=counters.preemptions + begun.work.preemptions,
            prefill_tokens=counters.prefill_tokens
            + jnp.where(
                begun.worker.end_ms <= lane.limits.until_ms, begun.work.committed, 0
            ),
            peak_blocks=jnp.maximum(counters.peak_blocks, begun.work.referenced),
        ),
        busy_ns=state.busy_ns.at[place].add(begun.ns, mode="drop"),
    )


def _nothing(shape: CountingShape, state: Scenario, number: Int[Array, ""]) -> Begun:
    """No pass: nothing to write down."""
    worker = jax.tree.map(lambda leaf: leaf[number], state.workers)
    zero, no = jnp.int32(0), jnp.bool_(False)
    nobody = jnp.zeros(shape.slots, bool)
    work = PassWork(*[zero] * 5, no, *[zero] * 6, no, worker.slots.counts[REQUEST])
    return Begun(worker, work, zero, jnp.int64(0), zero, nobody, worker.slots, zero, no)


def is_active(shape: CountingShape, lane: Lane, state: Scenario) -> Bool[Array, ""]:
    """Whether anything is left to happen in a lane."""
    upcoming = upcoming_ms(shape, lane, state)
    ahead = jnp.isfinite(upcoming) & (upcoming <= lane.limits.until_ms)
    return (state.status == RUNNING) & ahead


def _ended(state: Scenario) -> Scenario:
    ended = jnp.where(state.status == RUNNING, FINISHED, state.status)
    return state._replace(status=ended.astype("int32"))


def run_scenario(shape: CountingShape, lane: Lane) -> Scenario:
    """Run one lane to its end."""
    return _ended(
        packed_loop(
            lambda state: is_active(shape, lane, state),
            lambda state: next_event(shape, lane, state, True),
            fresh_scenario(shape, lane),
        )
    )


def run_scenarios(shape: CountingShape, lanes: Lane) -> Scenario:
    """Run all lanes (leaves lead with lanes) together, one event of each at a time.

    The loop is around the vmapped step: a finished lane writes nowhere, and no record is
    copied to hold it still.
    """
    active = jax.vmap(lambda lane, state: is_active(shape, lane, state))
    step = jax.vmap(lambda lane, state, on: next_event(shape, lane, state, on))
    return _ended(
        jax.lax.while_loop(
            lambda state: jnp.any(active(lanes, state)),
            lambda state: step(lanes, state, active(lanes, state)),
            jax.vmap(lambda lane: fresh_scenario(shape, lane))(lanes),
        )
    )
