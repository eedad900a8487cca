"""What one pass of the counting engine leaves in the records and the logs."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Int

from ._counting_pass import PassWork
from ._counting_state import (
    ADMIT,
    FIRST,
    REQUEST,
    Admitted,
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


COMPLETED, REJECTED = 1, 2


class Begun(NamedTuple):
    """A pass that has begun: its worker afterwards, and what to write down.

    Requests that leave stand behind the `worker.running` that stay.
    """

    worker: Worker
    work: PassWork
    passes: Int[Array, ""]
    ns: Int[Array, ""]
    leaving: Int[Array, ""]
    resumed: Bool[Array, " slots"]
    scheduled: Slots
    returned: Int[Array, ""]
    changed: Bool[Array, ""]


def written(
    shape: CountingShape,
    lane: Lane,
    records: Records,
    head: Int[Array, ""],
    begun: Begun,
) -> Records:
    """Records with the requests that leave in this pass, and those turned away."""
    worker = begun.worker
    end_ms, slots = worker.end_ms, worker.slots

    def leave(i, records: Records) -> Records:
        at = slots.counts[REQUEST, i]
        return records._replace(
            admit_ms=records.admit_ms.at[at].set(slots.instants_ms[ADMIT, i]),
            first_ms=records.first_ms.at[at].set(slots.instants_ms[FIRST, i]),
            last_ms=records.last_ms.at[at].set(end_ms),
            status=records.status.at[at].set(jnp.int8(COMPLETED)),
        )

    if shape.side_by_side:
        place = jnp.arange(shape.slots) - worker.running
        gone = (place >= 0) & (place < begun.leaving)
        at = jnp.where(gone, slots.counts[REQUEST], records.status.size)
        records = Records(
            records.admit_ms.at[at].set(slots.instants_ms[ADMIT], mode="drop"),
            records.first_ms.at[at].set(slots.instants_ms[FIRST], mode="drop"),
            records.last_ms.at[at].set(end_ms, mode="drop"),
            records.status.at[at].set(jnp.int8(COMPLETED), mode="drop"),
        )
    else:
        records = jax.lax.fori_loop(
            worker.running, worker.running + begun.leaving, leave, records
        )
    passed = jnp.where(begun.work.rejected > 0, worker.head, head)
    size = records.status.size

    def more(carried):
        return carried[0] < passed

    def turn_away(carried):
        at, records = carried
        isl, target = lane.traffic.isl[at], lane.traffic.target[at]
        whole = blocks_for(target if shape.guaranteed else isl, lane.limits.block_size)
        refused = (isl >= lane.limits.max_model_len) | (whole > lane.limits.blocks)
        place = jnp.where(refused, at, size)
        records = records._replace(
            last_ms=records.last_ms.at[place].set(end_ms, mode="drop"),
            status=records.status.at[place].set(jnp.int8(REJECTED), mode="drop"),
        )
        return at + lane.limits.workers, records

    return jax.lax.while_loop(more, turn_away, (head, records))[1]


def logged(
    shape: CountingShape,
    state: Scenario,
    number: Int[Array, ""],
    begun: Begun,
    start: Bool[Array, ""],
) -> Scenario:
    """The three logs with one more pass, its new emissions and its returns."""
    work, worker, counters = begun.work, begun.worker, state.counters
    entry = PassLog(
        state.now_ms,
        worker.end_ms,
        number,
        begun.passes,
        work.prefill,
        work.through_chunk,
        work.prefix,
        work.decode,
        work.context,
    )
    at = jnp.where(start, counters.events, shape.log)
    log = PassLog(
        *(
            field.at[at].set(value, mode="drop")
            for field, value in zip(state.log, entry, strict=True)
        )
    )
    request, isl, length = begun.scheduled.counts[:3]
    order = jnp.cumsum(begun.resumed, dtype=jnp.int32) - 1
    at = jnp.where(begun.resumed, counters.runs + order, shape.runs)
    first_pass = jnp.full_like(at, worker.passes - begun.passes)
    runs = RunLog(
        *(
            field.at[at].set(value, mode="drop")
            for field, value in zip(
                state.runs, (request, first_pass, length - isl), strict=True
            )
        )
    )
    # Those who returned were admitted first, right behind the running ones.
    before = worker.running + begun.leaving - work.admitted
    place = jnp.arange(shape.slots, dtype=jnp.int32) - before
    back = (place >= 0) & (place < begun.returned)
    at = jnp.where(back, counters.readmissions + place, shape.runs)
    admitted = Admitted(
        state.admitted.request.at[at].set(request, mode="drop"),
        state.admitted.at_ms.at[at].set(state.now_ms, mode="drop"),
    )
    return state._replace(log=log, runs=runs, admitted=admitted)
