"""A workload without the requests that were refused, and its answer with them again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int

from ..traffic import Workload
from ..traffic._contents import BlockKeys, Contents
from ._outcome import REJECTED, Admissions, Handoff, Replayed, TokenTimes


@dataclass(frozen=True)
class _Kept(Contents):
    """Contents of the rows that are kept; lengths of the others are remembered."""

    whole: Contents
    isl_tokens: Int[np.ndarray, " reqs"]
    osl_tokens: Int[np.ndarray, " reqs"]
    kept: Int[np.ndarray, " kept"]

    def shares(self) -> bool:
        return self.whole.shares()

    def block_keys(self, isl_tokens, osl_tokens, block_size):
        isl, osl = self.isl_tokens.copy(), self.osl_tokens.copy()
        isl[self.kept], osl[self.kept] = isl_tokens, osl_tokens
        keys = self.whole.block_keys(isl, osl, block_size)
        counts = np.diff(keys.start)[self.kept]
        start = np.concatenate([[0], np.cumsum(counts)])
        within = np.arange(start[-1]) - np.repeat(start[:-1], counts)
        ids = keys.ids[np.repeat(keys.start[self.kept], counts) + within]
        return BlockKeys(ids, start, keys.distinct)


def without(workload: Workload, refused: Bool[np.ndarray, " reqs"]) -> Workload:
    """The workload without the refused requests.

    A refused turn takes no time: the next turn is ready when it would have been,
    its own delay after that.
    """
    if not refused.any():
        return workload
    kept = np.flatnonzero(~refused)
    turn, delay, arrival = _joined_turns(workload, refused)
    return replace(
        workload,
        arrival_ms=arrival[kept],
        isl_tokens=workload.isl_tokens[kept],
        osl_tokens=workload.osl_tokens[kept],
        session=_dense(workload.session[kept]),
        turn=turn[kept],
        delay_ms=delay[kept],
        contents=_Kept(
            workload.contents, workload.isl_tokens, workload.osl_tokens, kept
        ),
        session_names=None
        if workload.session_names is None
        else tuple(
            workload.session_names[s] for s in np.unique(workload.session[kept])
        ),
    )


def _dense(session: Int[np.ndarray, " reqs"]) -> Int[np.ndarray, " reqs"]:
    return np.unique(session, return_inverse=True)[1].astype(session.dtype)


def _joined_turns(
    workload: Workload, refused: Bool[np.ndarray, " reqs"]
) -> tuple[
    Int[np.ndarray, " reqs"], Float[np.ndarray, " reqs"], Float[np.ndarray, " reqs"]
]:
    """Turn numbers, delays and arrivals once the refused turns are gone."""
    order = np.lexsort((workload.turn, workload.session))
    turn, delay = workload.turn.copy(), workload.delay_ms.copy()
    arrival = workload.arrival_ms.copy()
    session, next_turn, waited, begin = -1, 0, 0.0, np.nan
    for row in order[np.isin(workload.session[order], workload.session[refused])]:
        if workload.session[row] != session:
            session, next_turn, waited = workload.session[row], 0, 0.0
            begin = workload.arrival_ms[row]
        else:
            waited += workload.delay_ms[row]
        if refused[row]:
            continue
        first = next_turn == 0
        turn[row], delay[row] = next_turn, 0.0 if first else waited
        arrival[row] = begin + waited if first else np.nan
        next_turn, waited = next_turn + 1, 0.0
    return turn, delay, arrival


def restored(
    replayed: Replayed, workload: Workload, refused: Bool[np.ndarray, " reqs"]
) -> Replayed:
    """The answer for all requests of `workload`; refused ones end as they arrive."""
    if not refused.any():
        return replayed
    kept = np.flatnonzero(~refused)

    def spread(values: np.ndarray, missing: float) -> np.ndarray:
        whole = np.full(refused.shape, missing, values.dtype)
        whole[kept] = values
        return whole

    nan = np.nan
    arrival = spread(replayed.arrival_ms, nan)
    terminal = spread(replayed.terminal_ms, nan)
    _end_refused(workload, refused, arrival, terminal)
    return replace(
        replayed,
        arrival_ms=arrival,
        first_admit_ms=spread(replayed.first_admit_ms, nan),
        first_token_ms=spread(replayed.first_token_ms, nan),
        second_token_ms=spread(replayed.second_token_ms, nan),
        last_token_ms=spread(replayed.last_token_ms, nan),
        terminal_ms=terminal,
        status=spread(replayed.status, REJECTED),
        output_tokens=spread(replayed.output_tokens, 0),
        worker=spread(replayed.worker, -1),
        reused_tokens=spread(replayed.reused_tokens, 0),
        first_reused_tokens=spread(replayed.first_reused_tokens, 0),
        handoff=None
        if replayed.handoff is None
        else Handoff(
            spread(replayed.handoff.prefill_worker, -1),
            spread(replayed.handoff.prefill_admit_ms, nan),
            spread(replayed.handoff.source_held_ms, nan),
            spread(replayed.handoff.destination_reserved_ms, nan),
            spread(replayed.handoff.destination_activated_ms, nan),
            spread(replayed.handoff.decode_admit_ms, nan),
            spread(replayed.handoff.source_released_ms, nan),
        ),
        admissions=_renumbered(replayed.admissions, kept),
        token_times=_spread_times(replayed.token_times, kept, refused.size),
    )


def _end_refused(
    workload: Workload,
    refused: Bool[np.ndarray, " reqs"],
    arrival: Float[np.ndarray, " reqs"],
    terminal: Float[np.ndarray, " reqs"],
) -> None:
    """Fill in when refused requests arrive, which is when they end.

    In a closed loop a refused session passes its slot on at once: it arrives with the
    next session that is served, or else when the first slot came free after the last.
    """
    first = workload.turn == 0
    rows = np.flatnonzero(refused & first)
    if workload.max_in_flight is None:
        arrival[rows] = workload.arrival_ms[rows]
    else:
        served = np.flatnonzero(~refused & first)
        ends = np.sort(terminal[~np.isnan(terminal)])
        waiting = served.size - workload.max_in_flight
        free_ms = ends[waiting] if 0 <= waiting < ends.size else 0.0
        following = np.append(arrival[served], free_ms)
        arrival[rows] = following[np.searchsorted(served, rows)]
    terminal[rows] = arrival[rows]
    order = np.lexsort((workload.turn, workload.session))
    previous = np.empty_like(order)
    previous[order[1:]] = order[:-1]
    later = refused & ~first
    for row in order[later[order]]:
        arrival[row] = terminal[previous[row]] + workload.delay_ms[row]
        terminal[row] = arrival[row]


def _renumbered(
    admissions: Callable[[], Admissions] | None, kept: Int[np.ndarray, " kept"]
) -> Callable[[], Admissions] | None:
    if admissions is None:
        return None

    def renumber() -> Admissions:
        log = admissions()
        return log._replace(request=kept[log.request])

    return renumber


def _spread_times(
    times: Callable[[], TokenTimes] | None, kept: Int[np.ndarray, " kept"], size: int
) -> Callable[[], TokenTimes] | None:
    if times is None:
        return None

    def spread() -> TokenTimes:
        log = times()
        counts = np.zeros(size, np.int64)
        counts[kept] = np.diff(log.start)
        return TokenTimes(log.at_ms, np.concatenate([[0], np.cumsum(counts)]))

    return spread
