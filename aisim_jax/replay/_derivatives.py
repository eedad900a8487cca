"""From a logged run to a schedule that can be timed again, differentiably."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from .._errors import InvalidInputError, UnsupportedError
from ..kernels.replay import DecodeWork, Instants, PrefillWork, Schedule
from ..traffic import Workload
from ._causes import Causes, Stretches, found_at, stretches_of
from ._deployment import Deployment
from ._outcome import COMPLETED, Passes, Replayed


def retimed(replayed: Replayed, workload: Workload, deployment: Deployment) -> Schedule:
    """The schedule of one logged run: which pass follows what, and brings which token.

    A pass begins where the previous one of its worker ended, at an arrival or delay, or
    where a pass elsewhere ended. Where several coincide (a tie) the first named is taken.
    Passes that took no time in the run stay without length. KV transfers, think times
    and arrivals from outside are constants.

    >>> (replayed,) = replay_scenarios(
    ...     [(workload, deployment)], log=True
    ... )  # doctest: +SKIP
    >>> schedule = retimed(replayed, workload, deployment)  # doctest: +SKIP
    >>> price = role_price(deployment.decode)  # doctest: +SKIP
    >>> with aisim_jax.precision():  # doctest: +SKIP
    ...     jax.grad(lambda p: schedule_metrics(schedule, p)["mean_ttft_ms"])(price)
    """
    _refuse(replayed, workload, deployment)
    assert replayed.passes is not None
    log = replayed.passes()
    stretches = stretches_of(log, deployment)
    requests = _Requests.of(replayed, workload, deployment)
    turns = requests.later & (workload.delay_ms > 0)
    turns &= np.isfinite(replayed.arrival_ms)
    waits = _waits(replayed, requests, stretches)
    causes = Causes(
        stretches,
        coupled=workload.max_in_flight is not None
        or workload.has_sessions
        or deployment.disaggregated,
        outside_worker=requests.entry_worker[requests.outside],
        outside_ms=replayed.arrival_ms[requests.outside],
        delayed_ms=np.concatenate([replayed.arrival_ms[turns], waits.until_ms]),
    )
    arrival = _arrivals(replayed, workload, requests, causes)
    begins = causes.of(stretches.start_ms, stretches.worker)
    reserved = causes.of(waits.from_ms, waits.worker)
    events = [
        Instants(np.zeros(1, np.int64), np.zeros(1)),
        begins,
        _at(arrival, turns),
        reserved._replace(since_ms=reserved.since_ms + waits.until_ms - waits.from_ms),
    ]
    after = Instants(*(np.concatenate(parts) for parts in zip(*events, strict=True)))
    spoke = (replayed.status == COMPLETED) & (replayed.output_tokens > 0)
    tokens = {
        "first_token": causes.of(
            replayed.first_token_ms[spoke], requests.worker[spoke]
        ),
        "last_token": causes.of(replayed.last_token_ms[spoke], requests.worker[spoke]),
    }
    _check_inside(stretches, replayed.first_token_ms, requests.worker, spoke)
    ended = np.flatnonzero(np.isfinite(replayed.terminal_ms))
    last = ended[np.argsort(replayed.terminal_ms[ended])[-1:]]
    end = causes.of(replayed.terminal_ms[last], requests.worker[last])
    room, count = _room(after.event.size), _room(int(spoke.sum()))
    ranks = max(
        deployment.decode.ranks,
        deployment.prefill.ranks if deployment.prefill is not None else 1,
    )
    prefill, prefill_cell, decode, decode_cell = _questions(log, stretches, ranks, room)
    return Schedule(
        after=_padded(after, room),
        prefill=prefill,
        prefill_cell=prefill_cell,
        decode=decode,
        decode_cell=decode_cell,
        arrival=_padded(_at(arrival, spoke), count),
        first_token=_padded(tokens["first_token"], count),
        last_token=_padded(tokens["last_token"], count),
        output_tokens=_grown(replayed.output_tokens[spoke].astype(np.int32), count),
        completed_requests=np.array((replayed.status == COMPLETED).sum(), np.int32),
        end=Instants(np.array(end.event.sum(), np.int32), np.array(end.since_ms.sum())),
        ranks=ranks,
    )


def _refuse(replayed: Replayed, workload: Workload, deployment: Deployment) -> None:
    if replayed.passes is None:
        raise InvalidInputError(
            "retimed: the run kept no log of its passes; replay with log=True"
        )
    coupled = workload.max_in_flight is not None or workload.has_sessions
    if workload.tokenizer is not None and coupled:
        raise UnsupportedError(
            "retimed: engine.tokenization in a closed loop or with sessions queues "
            "requests that passes release; drop the stage, or use an open loop"
        )
    for role in (deployment.decode, deployment.prefill):
        if role is not None and role.prices is not None and role.prices.apart:
            raise UnsupportedError(
                "retimed: pricing per_request needs every request's own length, which "
                "the log does not hold; use pricing means"
            )


class _Requests(NamedTuple):
    """Where requests run and what lets them in, numbered as `Stretches.worker`.

    before: the row of the previous turn. later: not the first turn of a session.
    outside: nothing in the run causes the arrival.
    """

    worker: Int[np.ndarray, " reqs"]
    entry_worker: Int[np.ndarray, " reqs"]
    before: Int[np.ndarray, " reqs"]
    later: Bool[np.ndarray, " reqs"]
    outside: Bool[np.ndarray, " reqs"]

    @classmethod
    def of(
        cls, replayed: Replayed, workload: Workload, deployment: Deployment
    ) -> _Requests:
        decode, prefill, handoff = (
            deployment.decode,
            deployment.prefill,
            replayed.handoff,
        )
        worker = np.where(replayed.worker >= 0, replayed.worker // decode.ranks, -1)
        entry = worker
        if prefill is not None and handoff is not None:
            rank = handoff.prefill_worker
            entry = np.where(rank >= 0, decode.workers + rank // prefill.ranks, -1)
        order = np.lexsort([workload.turn, workload.session])
        before = np.full(workload.size, -1)
        before[order[1:]] = order[:-1]
        later = workload.turn > 0
        arrived = np.isfinite(replayed.arrival_ms)
        outside = arrived & ~later & (workload.max_in_flight is None)
        return cls(worker, entry, before, later, outside)


class _Waits(NamedTuple):
    """KV transfers that end while no pass of their decode worker does."""

    from_ms: Float[np.ndarray, " waits"]
    until_ms: Float[np.ndarray, " waits"]
    worker: Int[np.ndarray, " waits"]  # that frees the place, or holds the prompt


def _waits(replayed: Replayed, requests: _Requests, stretches: Stretches) -> _Waits:
    handoff = replayed.handoff
    if handoff is None:
        return _Waits(np.zeros(0), np.zeros(0), np.zeros(0, np.int64))
    until_ms, from_ms = (
        handoff.destination_activated_ms,
        handoff.destination_reserved_ms,
    )
    rows = np.flatnonzero(until_ms > from_ms)
    nothing = np.zeros(0)
    ends = Causes(stretches, False, np.zeros(0, np.int64), nothing, nothing)
    rows = rows[ends.own_end(until_ms[rows], requests.worker[rows]) == 0]
    held = from_ms[rows] == handoff.source_held_ms[rows]
    worker = np.where(held, requests.entry_worker[rows], requests.worker[rows])
    return _Waits(from_ms[rows], until_ms[rows], worker)


def _arrivals(
    replayed: Replayed, workload: Workload, requests: _Requests, causes: Causes
) -> Instants:
    """An arrival from outside, or the end of another request and a delay."""
    released = found_at(replayed.terminal_ms, replayed.arrival_ms)
    cause = np.where(requests.later, requests.before, released)
    ended_ms = np.where(
        requests.later, replayed.terminal_ms[cause], replayed.arrival_ms
    )
    found = causes.of(ended_ms, np.where(cause >= 0, requests.worker[cause], -1))
    delay_ms = np.where(requests.later, workload.delay_ms, 0.0)
    outside = requests.outside
    return Instants(
        np.where(outside, 0, found.event),
        np.where(outside, replayed.arrival_ms, found.since_ms + delay_ms),
    )


def _check_inside(
    stretches: Stretches,
    first_token_ms: Float[np.ndarray, " reqs"],
    worker: Int[np.ndarray, " reqs"],
    spoke: Bool[np.ndarray, " reqs"],
) -> None:
    """Refuse first tokens that a run of equal passes brought before its end."""
    for one in np.unique(worker[spoke]):
        mine = stretches.worker == one
        start_ms = np.append(stretches.start_ms[mine], np.inf)
        tokens_ms = first_token_ms[spoke & (worker == one)]
        # The first stretch that ends at or after the token.
        place = np.searchsorted(stretches.end_ms[mine], tokens_ms)
        ends_ms = np.append(stretches.end_ms[mine], np.inf)
        inside = (start_ms[place] < tokens_ms) & (tokens_ms < ends_ms[place])
        if inside.any():
            raise UnsupportedError(
                f"retimed: a first token at {tokens_ms[inside][0]} ms falls inside a "
                "run of equal passes (SGLang short of pages); use a larger kv_cache"
            )


def _questions(
    log: Passes, stretches: Stretches, ranks: int, events: int
) -> tuple[
    PrefillWork,
    Int[np.ndarray, " prefills"],
    DecodeWork,
    Int[np.ndarray, " decodes"],
]:
    """What the passes of every stretch ask, each with its cell.

    A prefill pool pays no decode, a decode pool no prefill. Equal passes in a row differ
    by the context, which grows by one token of every request.
    """
    mine = Passes(*(field[stretches.entry] for field in log))
    cell = (stretches.entry_stretch + 1) * ranks + stretches.entry_rank
    n = np.maximum(mine.prefill_requests, 1)
    isl, prefix = mine.sum_prompt_through_chunk // n, mine.sum_prefix // n
    pays = (mine.pool != 2) & (mine.prefill_requests > 0) & (isl > prefix)
    fields = n[pays], isl[pays], np.minimum(prefix, isl - 1)[pays]
    room, nowhere = _room(int(pays.sum())), ranks * events
    prefill = PrefillWork(
        *(_grown(f.astype(np.int64), room, last=True) for f in fields)
    )
    prefill_cell = _grown(cell[pays].astype(np.int32), room, nowhere)
    pays = (mine.pool != 1) & (mine.decode_requests > 0)
    passes, requests = mine.passes[pays], mine.decode_requests[pays].astype(np.int64)
    each = np.repeat(np.arange(passes.size), passes)
    number = np.arange(each.size) - np.repeat(np.cumsum(passes) - passes, passes)
    context = mine.sum_context[pays][each] + requests[each] * number
    room = _room(each.size)
    decode = DecodeWork(
        _grown(requests[each], room, last=True), _grown(context, room, last=True)
    )
    return (
        prefill,
        prefill_cell,
        decode,
        _grown(cell[pays][each].astype(np.int32), room, nowhere),
    )


def _at(instants: Instants, rows: Bool[np.ndarray, " reqs"]) -> Instants:
    return Instants(instants.event[rows], instants.since_ms[rows])


def _room(count: int) -> int:
    return 1 << (count - 1).bit_length() if count else 0


def _padded(instants: Instants, room: int) -> Instants:
    event = _grown(instants.event.astype(np.int32), room)
    return Instants(event, _grown(instants.since_ms, room))


def _grown(
    values: np.ndarray, room: int, fill: int = 0, *, last: bool = False
) -> np.ndarray:
    """Padded to `room` with `fill`, or with the last value, which has a price."""
    pad = (0, room - values.size)
    if last and values.size:
        return np.pad(values, pad, mode="edge")
    return np.pad(values, pad, constant_values=fill)
