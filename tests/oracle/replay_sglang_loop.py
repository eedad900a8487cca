"""Event loop around SGLang ranks: arrivals, workers, pass ends, one pool of workers."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from oracle.replay_sglang import (
    CHUNKED_PREFILL_TOKENS,
    RATIO_INITIAL,
    Pass,
    Rank,
    Request,
)


RETRIES = 1024


class Stalled(Exception):
    """A rank can never proceed with what it holds."""


def duration_ms(ns: int) -> float:
    return (ns / 1e9) * 1000.0


@dataclass
class Record:
    """What happened to one request, ms; nan for never."""

    arrival: float = float("nan")
    admissions: list[tuple[float, int, int]] = field(default_factory=list)
    tokens: list[float] = field(default_factory=list)
    terminal: float = float("nan")
    status: int = 0
    worker: int = -1
    prefill_worker: int = -1
    held: float = float("nan")
    reserved: float = float("nan")
    activated: float = float("nan")
    decode_admit: float = float("nan")
    released: float = float("nan")


class Worker:
    """Ranks that step together."""

    def __init__(self, pool: int, index: int, ranks: list[Any], ready_ms: float):
        self.pool, self.index, self.ranks, self.ready_ms = pool, index, ranks, ready_ms
        self.busy = False
        self.passes = 0
        self.turn = 0
        self.busy_ms = 0.0

    @property
    def has_work(self) -> bool:
        return any(rank.has_work for rank in self.ranks)


def prices(steps):
    """Plain-Python twins of the step prices: (prefill_ns, decode_ns)."""
    name = type(steps).__name__
    if name == "FixedSteps":
        prefill, decode = int(steps.prefill), int(steps.decode)
        return (
            lambda n, isl, prefix: prefill if n > 0 and isl > prefix else 0,
            lambda n, context: decode if n > 0 else 0,
        )
    assert name == "PolynomialSteps"
    capacity = int(steps.capacity)

    def ns(raw_ms: float, speedup: float) -> int:
        whole = round(Fraction(max(raw_ms, 0.0) / 1000.0) * 10**9)
        return round(whole / speedup) if speedup > 0 else whole

    def prefill_ns(n: int, isl: int, prefix: int) -> int:
        if n == 0 or isl <= prefix:
            return 0
        t = float(n * (isl - prefix))
        raw = 4.209989e-7 * (t * t) + 1.518344e-2 * t + 16.50142
        return ns(raw, float(steps.speedup))

    def decode_ns(n: int, context: int) -> int:
        if n == 0:
            return 0
        p = min(context / capacity, 1.0)
        raw = max(1.0, -25.74 * (p * p) + 54.01 * p + 5.74)
        return ns(raw, float(steps.decode_speedup))

    return prefill_ns, decode_ns


def make_workers(role, pool: int, chunk: int, make=Rank) -> list[Worker]:
    prefill_ns, decode_ns = prices(role.steps)
    return [
        Worker(
            pool,
            w,
            [
                make(
                    page=role.block_size,
                    pages=role.num_blocks,
                    slots=role.max_sequences,
                    max_model_len=role.max_model_len,
                    interval=role.prefill_decode_interval,
                    prefill_ns=prefill_ns,
                    decode_ns=decode_ns,
                    caching=role.prefix_caching,
                    chunk=chunk,
                )
                for _ in range(role.ranks)
            ],
            role.startup_ms,
        )
        for w in range(role.workers)
    ]


class Loop:
    """Virtual time; kinds of events in their order: pass end, ready, transfer."""

    def __init__(self, workload, deployment, chunk: int = CHUNKED_PREFILL_TOKENS):
        self.load, self.deployment = workload, deployment
        self.pools = self._workers(chunk)
        self.pool = self.pools[-1]
        self.events: list = []
        self.arrivals: list = []
        self.seq = itertools.count()
        self.records = [Record() for _ in range(workload.size)]
        self.passes: list[tuple] = []
        self.next_worker = 0
        self.retractions = 0
        self.in_flight = 0
        self.keys = {}
        self._session_rows()
        self._start_load()
        for w in itertools.chain(*self.pools):
            if w.ready_ms > 0:
                self._at(w.ready_ms, 1, w, None)

    def _workers(self, chunk: int) -> list[list[Worker]]:
        return [make_workers(self.deployment.decode, 0, chunk)]

    def _at(self, when: float, kind: int, w: Worker, what, order: int = 0):
        key = (when, kind, w.pool, w.index, order, w.passes, next(self.seq))
        heapq.heappush(self.events, (*key, w, what))

    # traffic

    def _session_rows(self):
        rows: dict[int, list[int]] = {}
        for i in range(self.load.size):
            rows.setdefault(int(self.load.session[i]), []).append(i)
        self.rows = {
            s: sorted(r, key=lambda i: self.load.turn[i]) for s, r in rows.items()
        }
        self.backlog = deque(self.rows)
        self.servers = [0.0] * (
            self.load.tokenizer.workers if self.load.tokenizer else 0
        )

    def _start_load(self):
        limit = self.load.max_in_flight
        if limit is not None:
            for _ in range(min(limit, len(self.rows))):
                self._arrive(self.rows[self.backlog.popleft()][0], 0.0)
            return
        for rows in self.rows.values():
            self._arrive(rows[0], float(self.load.arrival_ms[rows[0]]))

    def _arrive(self, row: int, at: float):
        heapq.heappush(self.arrivals, (at, next(self.seq), row, True))

    def _request(self, row: int, page: int, output: int | None = None) -> Request:
        if page not in self.keys:
            self.keys[page] = self.load.contents.block_keys(
                self.load.isl_tokens, self.load.osl_tokens, page
            )
        keys = self.keys[page]
        ids = keys.ids[keys.start[row] : keys.start[row + 1]].tolist()
        out = int(self.load.osl_tokens[row]) if output is None else output
        return Request(row, int(self.load.isl_tokens[row]), out, ids)

    def _release_arrivals(self, now: float) -> bool:
        moved = False
        while self.arrivals and self.arrivals[0][0] <= now:
            at, _, row, raw = heapq.heappop(self.arrivals)
            moved = True
            if raw:
                self.records[row].arrival = at
                self.in_flight += 1
                self._accept(row, at)
            else:
                self._tokenized(row, now)
        return moved

    def _accept(self, row: int, now: float):
        """A request that has arrived goes through the tokenizer, if there is one."""
        if self.load.tokenizer is None:
            self._submit(row, now)
        else:
            self._tokenize(row, now, self.servers)

    def _tokenize(self, row: int, now: float, servers: list[float]):
        stage = self.load.tokenizer
        free = min(range(len(servers)), key=lambda k: servers[k])
        tokens = int(self.load.isl_tokens[row])
        service = stage.base_ms + tokens * stage.per_input_token_us / 1000
        done = max(now, servers[free]) + service
        servers[free] = done
        heapq.heappush(self.arrivals, (done, next(self.seq), row, False))

    def _tokenized(self, row: int, now: float):
        self._submit(row, now)

    def _submit(self, row: int, now: float):
        w = self.pool[self.next_worker]
        self.next_worker = (self.next_worker + 1) % len(self.pool)
        rank = w.turn
        w.turn = (w.turn + 1) % len(w.ranks)
        self.records[row].worker = w.index * len(w.ranks) + rank
        w.ranks[rank].submit(self._request(row, self.deployment.decode.block_size))

    def _terminal(self, row: int, now: float, status: int):
        record = self.records[row]
        record.terminal, record.status = now, status
        self.in_flight -= 1
        rows = self.rows[int(self.load.session[row])]
        place = rows.index(row)
        if place + 1 < len(rows):
            self._arrive(
                rows[place + 1], now + float(self.load.delay_ms[rows[place + 1]])
            )
        elif self.load.max_in_flight is not None and self.backlog:
            self._arrive(self.rows[self.backlog.popleft()][0], now)

    # passes

    def _plan(self, w: Worker, now: float) -> tuple[list[Pass], float]:
        plans = [rank.step() for rank in w.ranks]
        if any(p.prefilled for p in plans):
            for rank in w.ranks:
                rank.hold = rank.interval
        end = now
        for rank, p in enumerate(plans):
            e = now + duration_ms(p.prefill_ns) + duration_ms(p.decode_ns)
            end = max(end, e)
            for req, reuse in p.admitted:
                self.records[req.index].admissions.append((now, w.pool, reuse))
            self.retractions += len(p.retracted)
            if p.scheduled:
                self.passes.append(
                    (
                        now,
                        e,
                        w.pool,
                        w.index * len(w.ranks) + rank,
                        *p.prefill,
                        *p.decode,
                    )
                )
        w.passes += 1
        w.busy_ms += end - now
        return plans, end

    def _deliver(self, w: Worker, plans: list[Pass], now: float):
        for p in plans:
            for req in p.rejected:
                self._terminal(req.index, now, 2)
            for req in p.tokens:
                self.records[req.index].tokens.append(now)
            for req in p.finished:
                self._terminal(req.index, now, 1)

    def _drive(self, w: Worker, now: float) -> bool:
        """Start passes of an idle worker until one takes time; whether any changed."""
        retries, changed = 0, False
        while w.has_work:
            plans, end = self._plan(w, now)
            if not any(p.worked for p in plans) and any(p.deferred for p in plans):
                for rank in w.ranks:
                    rank.ratio = RATIO_INITIAL
            if end > now:
                w.busy = True
                self._at(end, 0, w, plans)
                return True
            if any(p.effect for p in plans):
                self._deliver(w, plans, now)
                changed = True
            else:
                retries += 1
                if retries > RETRIES or not any(p.ratio_changed for p in plans):
                    return self._without_effect(changed)
        return changed

    def _without_effect(self, changed: bool) -> bool:
        """Passes of a worker have stopped changing anything."""
        raise Stalled(f"{self.in_flight} in-flight requests remaining")

    def _advance(self, now: float) -> bool:
        """What happens between the events of one instant; whether anything did."""
        moved = self._release_arrivals(now)
        return moved | self._start(self.pool, now)

    def _start(self, workers: list[Worker], now: float) -> bool:
        """Start passes on idle workers that have work."""
        moved = False
        for w in workers:
            if not w.busy and w.has_work and now >= w.ready_ms:
                moved |= self._drive(w, now)
        return moved

    def _transferred(self, row: int, now: float):
        """The KV of a request has reached its destination."""
        raise NotImplementedError

    def run(self):
        now = 0.0
        cap = self.load.max_virtual_time_ms
        while True:
            moved = True
            while moved:
                moved = False
                while self.events and self.events[0][0] <= now:
                    *_, w, what = event = heapq.heappop(self.events)
                    moved = True
                    if event[1] == 0:
                        w.busy = False
                        self._deliver(w, what, now)
                    elif event[1] == 2:
                        self._transferred(what, now)
                moved |= self._advance(now)
            upcoming = [q[0][0] for q in (self.events, self.arrivals) if q]
            if not upcoming:
                return self
            now = min(upcoming)
            if cap is not None and now > cap:
                return self


def replay(workload, deployment, chunk: int = CHUNKED_PREFILL_TOKENS) -> Loop:
    return Loop(workload, deployment, chunk).run()


def arrays(loop: Loop) -> dict[str, np.ndarray]:
    """The figures of `Replayed`, by its field names."""
    records, nan = loop.records, float("nan")

    def get(f):
        return np.array([f(r) for r in records])

    return {
        "arrival_ms": get(lambda r: r.arrival),
        "first_admit_ms": get(lambda r: r.admissions[0][0] if r.admissions else nan),
        "first_token_ms": get(lambda r: r.tokens[0] if r.tokens else nan),
        "second_token_ms": get(lambda r: r.tokens[1] if len(r.tokens) > 1 else nan),
        "last_token_ms": get(lambda r: r.tokens[-1] if r.tokens else nan),
        "terminal_ms": get(lambda r: r.terminal),
        "status": get(lambda r: r.status),
        "output_tokens": get(lambda r: len(r.tokens)),
        "worker": get(lambda r: r.worker),
        "reused_tokens": get(lambda r: max((a[2] for a in r.admissions), default=0)),
        "first_reused_tokens": get(lambda r: r.admissions[0][2] if r.admissions else 0),
    }
