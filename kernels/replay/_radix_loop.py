"""One replay of SGLang workers, event by event: a scalar program for one lane.

Do not vmap: every branch is a real branch, and no array is copied to change an element.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Bool, Float, Int

from .._arrays import Array
from ._block_cells import Cells
from ._radix_arrivals import (
    first_arrivals,
    follow_up,
    next_arrival_ms,
    release_arrivals,
)
from ._radix_branch import each, repeat, view, when
from ._radix_handover import (
    finish_transfers,
    pass_ended,
    run_actions,
    send,
    worker_of,
)
from ._radix_logs import log_pass, log_token
from ._radix_pages import Scene
from ._radix_pass import rank_pass
from ._radix_state import (
    ACTIONS,
    ADMISSIONS,
    DONE,
    JOINS,
    NODES,
    PASSES,
    RUNNING,
    STALLED,
    Live,
    Logs,
    RadixEngine,
    RadixLane,
    RadixShape,
    RadixState,
    Totals,
    at,
    fresh_pass,
    put,
    put_where,
    start_state,
)


I32 = Int[Array, ""]
F64 = Float[Array, ""]


class RadixAnswer(NamedTuple):
    """What one replay leaves behind."""

    status: I32
    live: Live
    logs: Logs
    totals: Totals
    decode_passes: Int[Array, " ranks"]
    reserved_ms: Float[Array, " reqs"] | None = None
    activated_ms: Float[Array, " reqs"] | None = None
    released_ms: Float[Array, " reqs"] | None = None


def _worker_ranks(scene: Scene, worker: I32) -> tuple[I32, I32]:
    shape = scene.shape
    if not shape.prefill_workers:
        first = worker * shape.ranks
        return first, first + shape.ranks
    source = worker < shape.prefill_workers
    decode = shape.source_ranks + (worker - shape.prefill_workers) * shape.ranks
    first = jnp.where(source, worker * shape.prefill_ranks, decode)
    return first, first + jnp.where(source, shape.prefill_ranks, shape.ranks)


def _own_ranks(scene: Scene, worker: I32) -> Bool[Array, " ranks"]:
    return worker_of(scene.shape, jnp.arange(scene.shape.all_ranks)) == worker


def _has_work(scene: Scene, state: RadixState, worker: I32) -> Bool[Array, ""]:
    ranks = state.ranks
    busy = (ranks.head >= 0) | (ranks.running > 0) | (ranks.reject_head >= 0)
    if scene.shape.all_ranks == 1:
        return busy[0]
    if state.handover is not None:
        busy |= state.handover.built[:, 0] >= 0
    return jnp.any(busy & _own_ranks(scene, worker))


def _horizon_ms(scene: Scene, state: RadixState, worker: I32) -> F64:
    """Before which nothing can arrive at this worker that it does not cause itself."""
    horizon = jnp.minimum(next_arrival_ms(scene, state)[0], scene.engine.cap_ms)
    if scene.shape.all_workers == 1:
        return horizon

    def other(i, horizon):
        idle_ms = jnp.where(_has_work(scene, state, i), state.now, jnp.inf)
        end_ms = at(state.end_ms, i)
        until = jnp.where(jnp.isinf(end_ms), idle_ms, end_ms)
        return jnp.where(i == worker, horizon, jnp.minimum(horizon, until))

    hand = state.handover
    if hand is not None:
        # A reservation is tried after every pass; a transfer ends between passes.
        rank = _worker_ranks(scene, worker)[0]
        alone = (hand.asked[rank, 0] >= 0) | (hand.count > 0)
        horizon = jnp.where(alone, -jnp.inf, horizon)
        horizon = jnp.minimum(horizon, hand.transfers.soonest_ms)
        return each(0, scene.shape.all_workers, other, horizon)
    caused = (scene.load.in_flight > 0) | jnp.any(scene.load.follow >= 0)
    return lax.cond(
        caused,
        lambda: each(0, scene.shape.workers, other, horizon),
        lambda: horizon,
    )


def _see(scene: Scene, state: RadixState, rank: I32) -> RadixState:
    """Write the instants of this pass's tokens, completions and rejections."""
    this, slots = state.this, scene.shape.slots
    end = this.end_ms
    first = jnp.where(this.passes > 1, this.first_ms, end)
    prefill = at(state.ranks.decode_query, (rank, 0)) == 0

    def token(i, state):
        live = state.live
        row = at(state.ranks.emit, rank * slots + i)
        before = at(live.generated, row) - this.passes
        second = jnp.where(before == 0, this.second_ms, first)
        has_second = (before == 1) | ((before == 0) & (this.passes > 1))
        live = live._replace(
            first_ms=put_where(before == 0, live.first_ms, row, first),
            second_ms=put_where(has_second, live.second_ms, row, second),
            last_ms=put(live.last_ms, row, end),
        )
        state = state._replace(live=live)
        return when(prefill, lambda s: log_token(scene.shape, s, row, end), state)

    def done(i, terminal_ms):
        return put(terminal_ms, at(view(state).ranks.finish, rank * slots + i), end)

    state = each(0, at(state.ranks.emitting, rank), token, state)
    terminal_ms = each(0, at(state.ranks.finishing, rank), done, state.live.terminal_ms)

    def rejected(carry):
        terminal_ms, row = carry
        return put(terminal_ms, row, end), at(view(state).live.next, row)

    terminal_ms, _ = repeat(
        lambda carry: carry[1] >= 0,
        rejected,
        (terminal_ms, at(state.ranks.rejecting, rank)),
    )
    state = state._replace(live=state.live._replace(terminal_ms=terminal_ms))
    return log_pass(scene.shape, state, rank)


def _deliver(scene: Scene, state: RadixState, worker: I32) -> RadixState:
    """The pass of this worker ends: what ended lets others arrive."""
    slots = scene.shape.slots

    def of_rank(rank, state):
        def rejected(carry):
            state, row = carry
            return follow_up(scene, state, row), at(state.live.next, row)

        state, _ = repeat(
            lambda carry: carry[1] >= 0,
            rejected,
            (state, at(state.ranks.rejecting, rank)),
        )

        def done(i, state):
            row = at(state.ranks.finish, rank * slots + i)
            if not scene.shape.prefill_workers:
                return follow_up(scene, state, row)
            source = row >= scene.shape.reqs // 2
            state = when(source, lambda s: send(scene, s, row), state)
            return when(~source, lambda s: follow_up(scene, s, row), state)

        return each(0, at(state.ranks.finishing, rank), done, state)

    state = state._replace(end_ms=put(state.end_ms, worker, jnp.inf))
    state = each(*_worker_ranks(scene, worker), of_rank, state)
    if not scene.shape.prefill_workers:
        return state
    return pass_ended(scene, state, worker)


def _worker_pass(scene: Scene, state: RadixState, worker: I32) -> RadixState:
    """Plan one pass of all ranks of a worker."""
    first, last = _worker_ranks(scene, worker)
    state = state._replace(this=fresh_pass(state.now))
    if max(scene.shape.ranks, scene.shape.prefill_ranks) == 1:
        horizon = _horizon_ms(scene, state, worker)
        state = rank_pass(scene, state, first, horizon)
    else:
        alone = jnp.float64(-jnp.inf)
        state = each(first, last, lambda k, s: rank_pass(scene, s, k, alone), state)
    this, ranks = state.this, state.ranks
    own = _own_ranks(scene, worker)
    interval = scene.of_worker(worker).engine.interval
    hold = jnp.where(own & this.prefilled, interval, ranks.hold)
    rest = own & ~this.worked & this.deferred
    ratio = jnp.where(rest, scene.engine.limits.ratio_initial, ranks.ratio)
    state = state._replace(ranks=ranks._replace(hold=hold, ratio=ratio))
    state = each(first, last, lambda k, s: _see(scene, s, k), state)
    spent = this.end_ms - state.now
    busy_ms = state.totals.busy_ms.at[worker].add(spent)
    events = state.totals.events + 1
    return state._replace(totals=state.totals._replace(busy_ms=busy_ms, events=events))


def _drive(scene: Scene, state: RadixState, worker: I32) -> RadixState:
    """Start passes on an idle worker until one takes time."""
    limits = scene.engine.limits

    def going(carry):
        state, _, go = carry
        return go & (state.status == RUNNING) & _has_work(scene, state, worker)

    def one(carry):
        state, retries, _ = carry
        state = _worker_pass(scene, state, worker)
        this = state.this
        long = this.end_ms > state.now

        def starts(state):
            return state._replace(end_ms=put(state.end_ms, worker, this.end_ms))

        idle = ~long & ~this.effect
        ends = ~long
        if scene.shape.prefill_workers:
            ends &= ~idle
        state = when(
            ends, lambda s: _deliver(scene, s, worker), when(long, starts, state)
        )
        retries = retries + jnp.where(idle, 1, 0)
        stalled = idle & ((retries > limits.retries) | ~this.changed)
        if scene.shape.prefill_workers:
            # The other pool may still let it proceed.
            return _overflow(scene, state), retries, ~long & ~stalled
        status = jnp.where(
            stalled & (state.status == RUNNING), STALLED, state.status
        ).astype(jnp.int32)
        return _overflow(scene, state._replace(status=status)), retries, ~long

    return repeat(going, one, (state, jnp.int32(0), jnp.bool_(True)))[0]


def _overflow(scene: Scene, state: RadixState) -> RadixState:
    """Stop at a capacity that was too small; the caller runs again with more."""
    shape, logs, status = scene.shape, state.logs, state.status
    causes = [
        (bool(shape.nodes), state.tree.full, NODES),
        (bool(shape.passes), logs.passes > shape.passes, PASSES),
        (bool(shape.admissions), logs.admissions > shape.admissions, ADMISSIONS),
        (bool(shape.joins), logs.joins > shape.joins, JOINS),
    ]
    if state.handover is not None:
        causes.append((True, state.handover.full, ACTIONS))
    for possible, happened, code in causes:
        if possible:
            stops = happened & (status == RUNNING)
            status = jnp.where(stops, code, status).astype(jnp.int32)
    return state._replace(status=status)


def _getting_ready_ms(engine: RadixEngine, state: RadixState) -> F64:
    return jnp.where(state.now < engine.ready_ms, engine.ready_ms, jnp.inf)


def _event(scene: Scene, state: RadixState) -> RadixState:
    """Everything that happens at the next instant."""
    workers, engine, hand = scene.shape.all_workers, scene.engine, state.handover
    instant = jnp.minimum(next_arrival_ms(scene, state)[0], jnp.min(state.end_ms))
    instant = jnp.minimum(instant, _getting_ready_ms(engine, state))
    if hand is not None and scene.prefill is not None:
        instant = jnp.minimum(instant, _getting_ready_ms(scene.prefill, state))
        instant = jnp.minimum(instant, hand.transfers.soonest_ms)
        instant = jnp.where(hand.count > 0, state.now, instant)
    over = jnp.isinf(instant) | (instant > engine.cap_ms)

    def happen(state):
        state = state._replace(now=jnp.maximum(instant, state.now))

        def deliver(worker, state):
            due = at(state.end_ms, worker) <= state.now
            return when(due, lambda s: _deliver(scene, s, worker), state)

        def drive(worker, state):
            idle = jnp.isinf(at(state.end_ms, worker)) & (state.status == RUNNING)
            free = idle & (state.now >= scene.of_worker(worker).engine.ready_ms)
            return when(free, lambda s: _drive(scene, s, worker), state)

        state = each(jnp.int32(0), jnp.int32(workers), deliver, state)
        if scene.shape.prefill_workers:
            state = run_actions(scene, finish_transfers(state))
            state = _overflow(scene, state)
        state = release_arrivals(scene, state)
        return each(jnp.int32(0), jnp.int32(workers), drive, state)

    ends = jnp.int32(DONE)
    if hand is not None:
        live = state.live
        waits = jnp.any(~jnp.isnan(live.arrival_ms) & jnp.isnan(live.terminal_ms))
        ends = jnp.where(jnp.isinf(instant) & waits, STALLED, DONE)
    status = jnp.where(over, ends, state.status).astype(jnp.int32)
    return when(~over, happen, state._replace(status=status))


def _plain(record: Live) -> Live:
    return Live(*(f.values[:-1] if isinstance(f, Cells) else f for f in record))


def run_radix(shape: RadixShape, lane: RadixLane) -> RadixAnswer:
    """Replay one scenario; status says how it ended."""
    scene = Scene(shape, *lane)
    state = first_arrivals(scene, start_state(shape, lane))
    state = repeat(
        lambda state: state.status == RUNNING, lambda s: _event(scene, s), state
    )
    hand = state.handover
    return RadixAnswer(
        state.status,
        _plain(state.live),
        state.logs,
        state.totals,
        state.ranks.decode_passes,
        *(
            []
            if hand is None
            else [hand.reserved_ms, hand.activated_ms, hand.released_ms]
        ),
    )
