"""Which event an instant of a run comes from.

Engines carry instants on unchanged: a pass that begins because another ended begins at
the very same float64. What equals no other event is an instant from outside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Complex, Float, Int

from ..kernels.replay import Instants
from ._deployment import Deployment
from ._outcome import Passes


class Stretches(NamedTuple):
    """Passes that took time, worker by worker in time order: events 1, 2, ...

    worker: of the decode (or only) role, then of the prefill role. entry: place in the
    log of every rank's share; entry_stretch and entry_rank say whose it is.
    """

    worker: Int[np.ndarray, " stretches"]
    start_ms: Float[np.ndarray, " stretches"]
    end_ms: Float[np.ndarray, " stretches"]
    entry: Int[np.ndarray, " entries"]
    entry_stretch: Int[np.ndarray, " entries"]
    entry_rank: Int[np.ndarray, " entries"]


def stretches_of(log: Passes, deployment: Deployment) -> Stretches:
    """Join the ranks of a worker; passes of no length are left out."""
    decode, prefill = deployment.decode, deployment.prefill
    ranks = np.full(log.worker.size, decode.ranks)
    worker = log.worker // decode.ranks
    if prefill is not None:
        apart = log.pool == 1
        ranks[apart] = prefill.ranks
        worker = np.where(apart, decode.workers + log.worker // prefill.ranks, worker)
    entry = np.lexsort([log.start_ms, worker])
    entry = entry[(log.end_ms > log.start_ms)[entry]]
    key = _keys(worker[entry], log.start_ms[entry])
    begins = np.append(True, key[1:] != key[:-1])[: key.size]
    first = np.flatnonzero(begins)
    end_ms = log.end_ms[entry]
    return Stretches(
        worker=worker[entry][first].astype(np.int64),
        start_ms=log.start_ms[entry][first],
        end_ms=np.maximum.reduceat(end_ms, first) if first.size else end_ms,
        entry=entry,
        entry_stretch=np.cumsum(begins) - 1,
        entry_rank=(log.worker % ranks)[entry].astype(np.int64),
    )


@dataclass(frozen=True)
class Causes:
    """Events by their instants. Event 0 is the start of the clock.

    coupled: what happens at one worker can wake another. outside: (worker, ms) of
    arrivals that nothing in the run causes. delayed_ms: ends of delays, the events
    after the stretches.
    """

    stretches: Stretches
    coupled: bool
    outside_worker: Int[np.ndarray, " arrivals"]
    outside_ms: Float[np.ndarray, " arrivals"]
    delayed_ms: Float[np.ndarray, " delays"]

    def own_end(
        self, at_ms: Float[np.ndarray, " n"], worker: Int[np.ndarray, " n"]
    ) -> Int[np.ndarray, " n"]:
        """The stretch of `worker` that ends then, as an event; 0 where none does."""
        ends = _keys(self.stretches.worker, self.stretches.end_ms)
        return found_at(ends, _keys(worker, at_ms)) + 1

    def of(
        self, at_ms: Float[np.ndarray, " n"], worker: Int[np.ndarray, " n"]
    ) -> Instants:
        """Instants at `worker` as events; the clock itself where nothing caused them.

        What ended there comes first, then what arrived there from outside, then delays,
        then what ended elsewhere.
        """
        event = self.own_end(at_ms, worker)
        if self.coupled:
            outside = _keys(self.outside_worker, self.outside_ms)
            from_outside = found_at(outside, _keys(worker, at_ms)) >= 0
            delay = found_at(self.delayed_ms, at_ms)
            elsewhere = found_at(self.stretches.end_ms, at_ms) + 1
            delay = np.where(delay >= 0, delay + self.stretches.worker.size + 1, 0)
            event = np.select(
                [event > 0, from_outside, delay > 0], [event, 0, delay], elsewhere
            )
        return Instants(event, np.where(event > 0, 0.0, at_ms))


def found_at(
    known: Float[np.ndarray, " m"] | Complex[np.ndarray, " m"],
    wanted: Float[np.ndarray, " n"] | Complex[np.ndarray, " n"],
) -> Int[np.ndarray, " n"]:
    """Place in `known` of the first value equal to each wanted one, -1 where none is."""
    if not known.size:
        return np.full(wanted.size, -1)
    order = np.argsort(known, kind="stable")
    at = np.searchsorted(known, wanted, sorter=order)
    place = order[np.minimum(at, known.size - 1)]
    return np.where(known[place] == wanted, place, -1)


def _keys(
    worker: Int[np.ndarray, " n"], at_ms: Float[np.ndarray, " n"]
) -> Complex[np.ndarray, " n"]:
    """Pairs that compare like (worker, at_ms): complex numbers sort by both parts."""
    return worker + 1j * at_ms
