"""Virtual time of an aggregated pool: events, arrivals, sessions, group passes.

Knows no scheduling policy: ranks are `Scheduler`s made by `replay_oracle`.
"""

from __future__ import annotations

import heapq
from typing import Any

from .replay_inputs import Outcome, PassRow, Pool, Record, Request, Scenario, Stuck
from .replay_pass import Pass, Scheduler


PASS_END, READY, TRANSFER = 0, 1, 2


class Worker:
    """Ranks that step together."""

    def __init__(self, ranks: list[Scheduler], role: str, stage: int, index: int):
        self.ranks, self.role, self.stage, self.index = ranks, role, stage, index
        self.ready = True
        self.stepping = False
        self.group_pass = 0  # since the worker last drained
        self.next_rank = 0
        self.servers: list[float] = []  # when each tokenizer is free
        self.stored = self.removed = 0  # cache events of the passes that have ended

    @property
    def has_work(self) -> bool:
        return any(rank.has_work for rank in self.ranks)


class Clock:
    """The event loop; subclasses say what happens between events (`advance`)."""

    def __init__(self, scenario: Scenario):
        self.scenario = scenario
        self.now = 0.0
        self.records = [Record(request) for request in scenario.requests]
        self.passes: list[PassRow] = []
        self.preemptions = self.committed = self.inserted = self.in_flight = 0
        self.events: list[tuple[Any, ...]] = []
        self.arrivals: list[tuple[float, int, Request]] = []
        self.tokenized: list[tuple[Any, ...]] = []
        self.turns: dict[int, list[Request]] = {}
        for request in scenario.requests:
            self.turns.setdefault(request.session, []).append(request)
        for turns in self.turns.values():
            turns.sort(key=lambda request: request.turn)
        self.sessions = list(self.turns)
        self.started = 0

    # ---- traffic ------------------------------------------------------------------

    def _arrive(self, request: Request, at: float) -> None:
        """Arrivals of one instant come by session."""
        heapq.heappush(self.arrivals, (at, request.session, request))

    def _number(self) -> int:
        self.inserted += 1
        return self.inserted

    def _open(self) -> None:
        limit = self.scenario.max_in_flight
        if limit is None:
            for turns in self.turns.values():
                self._arrive(turns[0], turns[0].arrival_ms)
        else:
            for _ in range(limit):
                self._next_session()

    def _next_session(self) -> None:
        if self.started < len(self.sessions):
            session = self.sessions[self.started]
            self.started += 1
            self._arrive(self.turns[session][0], self.now)

    def end_request(self, index: int, status: str) -> None:
        """A request reached its end now: its session goes on, or makes room."""
        record = self.records[index]
        record.status, record.terminal_ms = status, self.now
        self.in_flight -= 1
        turns = self.turns[record.request.session]
        following = record.request.turn + 1
        if following < len(turns):
            self._arrive(turns[following], self.now + turns[following].delay_ms)
        elif self.scenario.max_in_flight is not None:
            self._next_session()

    def released(self) -> list[Request]:
        """Requests that arrive now."""
        out = []
        while self.arrivals and self.arrivals[0][0] <= self.now:
            at, _, request = heapq.heappop(self.arrivals)
            self.records[request.index].arrival_ms = at
            self.in_flight += 1
            out.append(request)
        return out

    def accept(self, worker: Worker, request: Request, rank: int | None = None) -> None:
        """Give a request to a worker, which first tokenizes it if there is a stage."""
        stage = self.scenario.tokenizer
        if stage is None:
            self.place(worker, request, rank)
            return
        begin = max(self.now, heapq.heappop(worker.servers))
        end = begin + stage.service_ms(request.isl)
        heapq.heappush(worker.servers, end)
        heapq.heappush(self.tokenized, (end, self._number(), request, worker, rank))

    def tokenize(self) -> bool:
        """Submit what the tokenizers have finished."""
        done = False
        while self.tokenized and self.tokenized[0][0] <= self.now:
            _, _, request, worker, rank = heapq.heappop(self.tokenized)
            self.place(worker, request, rank)
            done = True
        return done

    def place(self, worker: Worker, request: Request, rank: int | None) -> None:
        """Submit to this rank, or to the next one of the worker."""
        if rank is None:
            rank = worker.next_rank % len(worker.ranks)
            worker.next_rank += 1
        number = worker.index * len(worker.ranks) + rank
        record = self.records[request.index]
        if worker.role == "prefill":
            record.prefill_worker = number
        else:
            record.worker = number
        self.placed(request.index, worker, worker.ranks[rank])
        worker.ranks[rank].submit(request)

    # ---- events -------------------------------------------------------------------

    def at(self, when: float, kind: int, worker: Worker, what: Any) -> None:
        """Schedule an event; at equal times by kind, stage, worker, then insertion."""
        key = (when, kind, worker.stage, worker.index, self._number())
        heapq.heappush(self.events, (*key, worker, what))

    def _deliver(self) -> bool:
        due = False
        while self.events and self.events[0][0] <= self.now:
            *_, worker, what = event = heapq.heappop(self.events)
            due = True
            if event[1] == PASS_END:
                self._end_pass(worker, what)
            elif event[1] == READY:
                worker.ready = True
            else:
                self.transferred(worker, what)
        return due

    def add_workers(self, pool: Pool, role: str, stage: int, make) -> list[Worker]:
        """Workers of a pool, ready at its start-up time."""
        workers = []
        for index in range(pool.workers):
            ranks = [
                make(
                    pool.engine,
                    role,
                    self.scenario.block_key,
                    index * pool.ranks + rank,
                )
                for rank in range(pool.ranks)
            ]
            worker = Worker(ranks, role, stage, index)
            if self.scenario.tokenizer:
                worker.servers = [0.0] * self.scenario.tokenizer.workers
            if pool.startup_ms > 0:
                worker.ready = False
                self.at(pool.startup_ms, READY, worker, None)
            workers.append(worker)
        return workers

    def run(self) -> Outcome:
        """Until nothing is left to happen, or past the cap."""
        self._open()
        while True:
            while self._deliver() | self.advance():
                pass
            queues = (self.events, self.arrivals, self.tokenized)
            later = [queue[0][0] for queue in queues if queue]
            if not later:
                break
            cap = self.scenario.max_virtual_time_ms
            if cap is not None and min(later) > cap:
                return self._outcome()
            self.now = min(later)
        if self.in_flight:
            raise Stuck(f"{self.in_flight} requests in flight can never proceed")
        return self._outcome()

    def _outcome(self) -> Outcome:
        out = Outcome(self.records, self.passes, self.preemptions, self.committed)
        out.end_ms = self.now
        for worker in self.workers():
            out.blocks_stored += worker.stored
            out.blocks_removed += worker.removed
        return out

    # ---- passes -------------------------------------------------------------------

    def drive(self, worker: Worker, pool: Pool) -> bool:
        """Start passes of an idle worker until one takes time or nothing changes."""
        changed = False
        while worker.ready and not worker.stepping and worker.has_work:
            steps = [
                rank.plan(worker.group_pass) if rank.has_work else Pass()
                for rank in worker.ranks
            ]
            worker.group_pass += 1
            ends = [self._price(worker.role, pool, step) for step in steps]
            end = max(ends)
            self._note(worker, steps, end)
            if end > self.now:
                worker.stepping = True
                self.at(end, PASS_END, worker, steps)
                return True
            if not any(step.effective for step in steps):
                break
            self._end_pass(worker, steps)
            changed = True
        return changed

    def _price(self, role: str, pool: Pool, step: Pass) -> float:
        capacity = pool.engine.num_blocks * pool.engine.block_size
        prefill = pool.timing.prefill_s(*step.prefill)
        decode = 0.0
        if role != "prefill":
            decode = pool.timing.decode_s(*step.decode, capacity)
        return self.now + prefill * 1000.0 + decode * 1000.0

    def _note(self, worker: Worker, steps: list[Pass], end: float) -> None:
        for rank, step in enumerate(steps):
            number = worker.index * len(worker.ranks) + rank
            self.preemptions += step.preempted
            for index, reuse in step.admitted:
                record = self.records[index]
                record.admissions.append((self.now, worker.role, reuse))
            if not step.empty:
                span = (self.now, end, worker.role, number)
                work = (*step.prefill, *step.decode, step.scheduled_tokens)
                self.passes.append(PassRow(*span, *work))

    def _end_pass(self, worker: Worker, steps: list[Pass]) -> None:
        worker.stepping = False
        pools = [rank.pool for rank in worker.ranks]
        worker.stored = sum(pool.stored for pool in pools)
        worker.removed = sum(pool.removed for pool in pools)
        for step in steps:
            self.committed += step.committed_prefill_tokens
            for index, count in step.tokens:
                self.records[index].token_ms += [self.now] * count
            for index in step.finished:
                self.end_request(index, "completed")
            for index in step.rejected:
                self.end_request(index, "rejected")
        if not worker.has_work:
            worker.group_pass = 0
        self.pass_ended(worker, steps)

    # ---- what differs between topologies --------------------------------------------

    def workers(self) -> list[Worker]:
        raise NotImplementedError

    def advance(self) -> bool:
        raise NotImplementedError

    def pass_ended(self, worker: Worker, steps: list[Pass]) -> None:
        """Hand-off events of a pass."""

    def placed(self, index: int, worker: Worker, rank: Any) -> None:
        """A request has been submitted to this rank."""

    def transferred(self, worker: Worker, what: Any) -> None:
        """A KV transfer to this worker is complete."""


class Aggregated(Clock):
    """One pool, round robin over workers and, inside a worker, over ranks."""

    def __init__(self, scenario: Scenario, make):
        super().__init__(scenario)
        self.pool = scenario.decode
        self.agg = self.add_workers(self.pool, "agg", 0, make)
        self.next_worker = 0

    def workers(self) -> list[Worker]:
        return self.agg

    def advance(self) -> bool:
        arrived = self.released()
        for request in arrived:
            worker = self.agg[self.next_worker % len(self.agg)]
            self.next_worker += 1
            self.accept(worker, request)
        tokenized = self.tokenize()
        started = [self.drive(worker, self.pool) for worker in self.agg]
        return bool(arrived) or tokenized or any(started)
