"""SGLang with a prefill and a decode pool: the destination is reserved first.

Written from the behavioural specification and from runs of small configurations.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from oracle.replay_inputs import Transfer
from oracle.replay_sglang import CHUNKED_PREFILL_TOKENS, Pass, Rank, Request
from oracle.replay_sglang_loop import Loop, Stalled, Worker, make_workers


PREFILL, DECODE = 1, 2


class PrefillRank(Rank):
    """Completed prompts keep their pages until their destination is active."""

    def _finish(self, out: Pass, r: Request):
        self._store(r)
        self.running.remove(r)
        out.finished.append(r)

    def release_source(self, r: Request):
        self._store(r)  # counts as a use of the cached pages
        self._release(r)


class DecodeRank(Rank):
    """Requests come with their KV, in pages that were reserved before."""

    def __init__(self, **limits: Any):
        super().__init__(**limits)
        self.asked: deque[Request] = deque()
        self.built: deque[Request] = deque()

    @property
    def has_work(self) -> bool:
        return bool(self.waiting or self.running or self.built)

    def try_reserve(self) -> Request | None:
        """Pages of the whole prompt for the first that asks; cached ones are shared."""
        if not self.asked:
            return None
        r = self.asked[0]
        node, known = None, 0
        if self.caching:
            node, known = self.tree.match(r.pages[: r.prompt // self.page])
        self.tree.lock(node)
        fresh = self._ceil(r.prompt) - known
        if not self._make_room(fresh):
            self.tree.unlock(node)
            return None
        self._take(fresh)
        r.node, r.cached_pages, r.held_pages = node, known, fresh
        r.owned = r.prompt
        self.asked.popleft()
        return r

    def step(self) -> Pass:
        fresh = []
        while self.built and len(self.running) < self.slots:
            r = self.built.popleft()
            r.admitted = True
            r.admissions += 1
            self._store(r)
            self.running.append(r)
            fresh.append((r, 0))
        out = super().step()
        out.admitted = fresh + out.admitted
        return out

    def _admit(self, out: Pass) -> list[tuple[Request, int, int]]:
        return [] if self.asked else super()._admit(out)


def _next_rank(workers: list[Worker], turn: int) -> tuple[Worker, int]:
    """Round robin over all ranks of a pool, worker by worker."""
    ranks = len(workers[0].ranks)
    return workers[turn // ranks % len(workers)], turn % ranks


class PrefillDecodeLoop(Loop):
    """Actions run in order; one for a stepping worker waits until its pass ends."""

    def _workers(self, chunk: int) -> list[list[Worker]]:
        prefill, decode = self.deployment.prefill, self.deployment.decode
        self.actions: deque[tuple[Any, ...]] = deque()
        self.deferred: dict[Worker, list[tuple[Any, ...]]] = {}
        self.source: dict[int, tuple[Worker, PrefillRank, Request]] = {}
        self.target: dict[int, tuple[Worker, DecodeRank, Request]] = {}
        self.order: dict[int, int] = {}  # of reservations
        self.submitted = self.destined = 0
        transfer = self.deployment.transfer
        self.transfer = Transfer(
            transfer.bytes_per_token,
            transfer.bandwidth_gb_per_s,
            transfer.full_prompt,
            transfer.latency_ms,
        )
        for_prefill = make_workers(prefill, PREFILL, chunk, PrefillRank)
        for worker in for_prefill:
            for rank in worker.ranks:
                rank.decode_ns = lambda n, context: 0
        for_decode = make_workers(decode, DECODE, chunk, DecodeRank)
        for worker in for_decode:
            for rank in worker.ranks:
                rank.prefill_ns = lambda n, isl, prefix: 0
        stage = self.load.tokenizer
        self.tokenizers = [[0.0] * (stage.workers if stage else 0) for _ in for_prefill]
        return [for_prefill, for_decode]

    def _tokenized(self, row: int, now: float):
        _, rank, request = self.source[row]
        rank.submit(request)

    def _advance(self, now: float) -> bool:
        acted = self._act(now)
        arrived = self._release_arrivals(now)
        started = self._start(self.pools[0], now)
        return acted | arrived | started | self._start(self.pools[1], now)

    def _act(self, now: float) -> bool:
        acted = False
        while self.actions:
            acted = True
            action, worker, *rest = self.actions.popleft()
            if worker is not None and worker.busy:
                self.deferred.setdefault(worker, []).append((action, worker, *rest))
            else:
                action(*rest, now)
        return acted

    def _deliver(self, w: Worker, plans: list[Pass], now: float):
        if w.pool == DECODE:
            super()._deliver(w, plans, now)
            for rank in w.ranks:
                self.actions.append((self._try_idle, None, w, rank))
        else:
            for plan in plans:
                for r in plan.rejected:
                    self._terminal(r.index, now, 2)
                for r in plan.finished:
                    self.records[r.index].held = now
                    self._send(r.index, now)
        self.actions += self.deferred.pop(w, [])

    def _without_effect(self, changed: bool) -> bool:
        return changed

    # actions

    def _accept(self, row: int, now: float):
        limit = self.deployment.decode.max_model_len
        if limit is not None and self.load.isl_tokens[row] >= limit:
            self._terminal(row, now, 2)
            return
        self.actions.append((self._reserve, None, row))

    def _reserve(self, row: int, now: float):
        w, rank = _next_rank(self.pools[1], self.destined)
        self.destined += 1
        self.records[row].worker = w.index * len(w.ranks) + rank
        request = self._request(row, self.deployment.decode.block_size)
        limit = w.ranks[rank].limit
        if limit is not None:
            request.output = min(request.output, max(0, limit - request.prompt))
        self.target[row] = (w, w.ranks[rank], request)
        w.ranks[rank].asked.append(request)
        if not w.busy:
            self._try(w, w.ranks[rank], now)

    def _try(self, w: Worker, rank: DecodeRank, now: float):
        r = rank.try_reserve()
        if r is None:
            return
        self.records[r.index].reserved = now
        self.order[r.index] = len(self.order)
        self.actions.append((self._prefill, None, r.index))

    def _try_idle(self, w: Worker, rank: DecodeRank, now: float):
        if not w.busy:
            self._try(w, rank, now)

    def _prefill(self, row: int, now: float):
        w, rank = _next_rank(self.pools[0], self.submitted)
        self.submitted += 1
        self.records[row].prefill_worker = w.index * len(w.ranks) + rank
        request = self._request(row, self.deployment.prefill.block_size, 1)
        self.source[row] = (w, w.ranks[rank], request)
        if self.load.tokenizer is None:
            w.ranks[rank].submit(request)
        else:
            self._tokenize(row, now, self.tokenizers[w.index])

    def _send(self, row: int, now: float):
        w, rank, r = self.target[row]
        delay = self.transfer.delay_ms(r.prompt, r.held_pages * rank.page)
        if delay > 0:
            self._at(now + delay, 2, w, row, self.order[row])
        else:
            self._transferred(row, now)

    def _transferred(self, row: int, now: float):
        self.actions.append((self._activate, self.target[row][0], row))

    def _activate(self, row: int, now: float):
        w, rank, r = self.target[row]
        rank.built.append(r)
        self.records[row].activated = now
        self.actions.append((self._release, self.source[row][0], row))
        self._try(w, rank, now)

    def _release(self, row: int, now: float):
        _, rank, r = self.source[row]
        rank.release_source(r)
        self.records[row].released = now

    def run(self):
        super().run()
        if self.in_flight and self.load.max_virtual_time_ms is None:
            raise Stalled(f"{self.in_flight} in-flight requests remaining")
        return self


def replay(workload, deployment, chunk: int = CHUNKED_PREFILL_TOKENS):
    return PrefillDecodeLoop(workload, deployment, chunk).run()
