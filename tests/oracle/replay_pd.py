"""Virtual time of a prefill and a decode pool: the life of a hand-over."""

from __future__ import annotations

from collections import deque
from typing import Any

from .replay_clock import TRANSFER, Clock, Worker
from .replay_inputs import Scenario
from .replay_pass import Pass


class Disaggregated(Clock):
    """Source first: a completed prompt stays held until its destination has the KV.

    Actions run in order; one for a stepping worker waits until its pass ends.
    """

    def __init__(self, scenario: Scenario, make):
        super().__init__(scenario)
        assert scenario.prefill is not None
        self.prefill_pool = scenario.prefill
        self.prefill = self.add_workers(scenario.prefill, "prefill", 0, make)
        self.decode = self.add_workers(scenario.decode, "decode", 1, make)
        self.actions: deque[tuple[Any, ...]] = deque()
        self.deferred: dict[Worker, list[tuple[Any, ...]]] = {}
        self.source: dict[int, tuple[Worker, Any]] = {}  # worker, rank
        self.target: dict[int, tuple[Worker, Any]] = {}
        self.submitted = self.destined = 0

    def workers(self) -> list[Worker]:
        return [*self.prefill, *self.decode]

    def advance(self) -> bool:
        acted = self._act() | self.tokenize()
        arrived = self.released()
        self.actions += [(self._submit, None, r.index) for r in arrived]
        started = [self.drive(worker, self.prefill_pool) for worker in self.prefill]
        started += [self.drive(worker, self.scenario.decode) for worker in self.decode]
        return acted or bool(arrived) or any(started)

    def _act(self) -> bool:
        acted = False
        while self.actions:
            acted = True
            action, worker, *rest = self.actions.popleft()
            if worker is not None and worker.stepping:
                self.deferred.setdefault(worker, []).append((action, worker, *rest))
            else:
                action(*rest)
        return acted

    def pass_ended(self, worker: Worker, steps: list[Pass]) -> None:
        for rank, step in zip(worker.ranks, steps, strict=True):
            for index in step.held:
                self.records[index].source_held_ms = self.now
                self._choose_target(index)
            if worker.role == "decode":
                self.actions.append((self._try, worker, worker, rank))
        self.actions += self.deferred.pop(worker, [])

    # ---- actions ------------------------------------------------------------------

    def _submit(self, index: int) -> None:
        worker, rank = next_rank(self.prefill, self.submitted)
        self.submitted += 1
        self.accept(worker, self.records[index].request, rank)

    def placed(self, index: int, worker: Worker, rank: Any) -> None:
        self.source[index] = (worker, rank)

    def _choose_target(self, index: int) -> None:
        worker, rank = next_rank(self.decode, self.destined)
        self.destined += 1
        self.records[index].worker = worker.index * len(worker.ranks) + rank
        self.target[index] = (worker, worker.ranks[rank])
        self.actions.append((self._reserve, None, index))

    def _reserve(self, index: int) -> None:
        worker, rank = self.target[index]
        rank.ask(self.records[index].request)
        if not worker.stepping:
            self._try(worker, rank)

    def _try(self, worker: Worker, rank: Any) -> None:
        granted = rank.try_reserve()
        if granted is None:
            return
        index, missing = granted
        record = self.records[index]
        record.destination_reserved_ms = self.now
        delay = self.scenario.transfer.delay_ms(record.request.isl, missing)
        if delay > 0:
            self.at(self.now + delay, TRANSFER, worker, index)
        else:
            self.transferred(worker, index)

    def transferred(self, worker: Worker, what: int) -> None:
        self.actions.append((self._activate, worker, what))

    def _activate(self, index: int) -> None:
        worker, rank = self.target[index]
        rank.activate(index)
        self.records[index].destination_activated_ms = self.now
        self.actions.append((self._release, self.source[index][0], index))
        self._try(worker, rank)

    def _release(self, index: int) -> None:
        _, rank = self.source[index]
        rank.release_source(index)
        self.records[index].source_released_ms = self.now


def next_rank(workers: list[Worker], turn: int) -> tuple[Worker, int]:
    """Round robin over all ranks of a pool, worker by worker."""
    ranks = len(workers[0].ranks)
    return workers[turn // ranks % len(workers)], turn % ranks
