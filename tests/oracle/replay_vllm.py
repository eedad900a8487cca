"""The vLLM scheduler of one rank, request by request."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from .replay_inputs import Engine, Request
from .replay_pass import Pass
from .replay_pool import Block, BlockPool
from .replay_traffic import ChaCha12


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


class Sequence:
    """A submitted request. length: prompt and generated tokens; computed: with KV."""

    def __init__(self, request: Request, osl: int):
        self.request, self.isl, self.osl = request, request.isl, osl
        self.length = request.isl
        self.computed = 0
        self.generated = 0
        self.blocks: list[Block] = []
        self.admissions = 0
        self.built = False  # delivered with its KV by a prefill worker
        self.order = 0  # of its reservation

    @property
    def rest(self) -> int:
        return self.length - self.computed


class VllmScheduler:
    """First the running requests in order, then the head of the waiting queue."""

    full_hits = False  # whether a wholly cached prompt needs no computation

    def __init__(
        self,
        engine: Engine,
        role: str,
        block_key: Callable[[int, int, int], Hashable],
        index: int = 0,
    ):
        self.engine, self.role, self.block_key = engine, role, block_key
        self.pool = BlockPool(engine.num_blocks, engine.prefix_caching)
        self.running: list[Sequence] = []
        self.waiting: list[Sequence] = []
        self.capacity_bound = False
        self.draw = ChaCha12(engine.speculation_seed + index)
        self.held: dict[int, Sequence] = {}  # prompts waiting to be handed over
        self.reservations: list[Sequence] = []  # asked for, in order
        self.reserved: dict[int, Sequence] = {}  # granted, KV on its way
        self.asked = 0
        self.refused_at: int | None = None  # pool.releases at the last refusal

    @property
    def has_work(self) -> bool:
        return bool(self.running or self.waiting)

    # ---- limits -------------------------------------------------------------------

    def output_limit(self, request: Request) -> int:
        """Output length granted at submission."""
        return min(request.osl, 1) if self.role == "prefill" else request.osl

    def too_large(self, seq: Sequence) -> bool:
        """Whether a new request can never fit the pool."""
        return ceil_div(seq.length, self.engine.block_size) > self.engine.num_blocks

    def room(self) -> int:
        """Blocks that an admission may count on."""
        return self.engine.num_blocks - self.pool.referenced

    def demand(self, seq: Sequence) -> int:
        """Blocks that an admission must find."""
        return ceil_div(seq.length, self.engine.block_size)

    def remaining(self, seq: Sequence) -> int:
        """Output tokens still to come."""
        rest = seq.osl - seq.generated
        if self.engine.max_model_len is not None:
            rest = min(rest, self.engine.max_model_len - seq.length)
        return max(rest, 0)

    # ---- blocks -------------------------------------------------------------------

    def leading(self, seq: Sequence, tokens: int) -> list[Block]:
        """Cached leading blocks of the first `tokens` tokens."""
        index, size = seq.request.index, self.engine.block_size
        keys = (self.block_key(index, size, b) for b in range(tokens // size))
        return self.pool.match(keys)

    def match(self, seq: Sequence) -> list[Block]:
        """Cached leading blocks that leave a token to compute if one must come."""
        last = not self.full_hits and seq.request.osl > 0
        hits = self.leading(seq, seq.length - last)
        return hits[:-1] if self.engine.acceptance and last else hits

    def publish(self, seq: Sequence) -> None:
        """Make the blocks findable that are full of computed tokens."""
        if not self.pool.caching:
            return
        size = self.engine.block_size
        b = seq.computed // size - 1
        while b >= 0 and seq.blocks[b].key is None:
            b -= 1
        for full in range(b + 1, seq.computed // size):
            key = self.block_key(seq.request.index, size, full)
            self.pool.publish(seq.blocks[full], key)

    def grow(self, seq: Sequence, tokens: int) -> bool:
        """Cover `tokens` tokens by blocks; False if the pool cannot."""
        missing = ceil_div(tokens, self.engine.block_size) - len(seq.blocks)
        if missing > 0:
            fresh = self.pool.allocate([], missing)
            if fresh is None:
                return False
            seq.blocks += fresh
        return True

    # ---- one pass -----------------------------------------------------------------

    def submit(self, request: Request) -> None:
        self.waiting.append(Sequence(request, self.output_limit(request)))

    def plan(self, group_pass: int) -> Pass:
        engine, step = self.engine, Pass()
        every = engine.prefill_schedule_interval
        defer = (
            every > 1
            and group_pass % every != 0
            and not self.capacity_bound
            and any(seq.computed >= seq.isl for seq in self.running)
        )
        taken: dict[Sequence, tuple[int, int]] = {}  # computed before, tokens
        budget = self._serve_running(step, taken, defer)
        if not step.preempted:
            self._admit(step, taken, budget, defer)
        silent = [q for q in self.running if not q.rest and not self.remaining(q)]
        for seq in silent:
            self._end(step, seq)
        if engine.acceptance:
            self._make_room_for_drafts(step, taken)
        if not defer and not step.preempted:
            self.capacity_bound = bool(self.waiting)
        self._charge(step, taken)
        self._emit(step, taken)
        return step

    def _serve_running(self, step, taken, defer) -> int:
        budget = self.engine.max_batched_tokens
        place = 0
        while place < len(self.running) and budget > 0:
            seq = self.running[place]
            if defer and seq.computed < seq.isl:
                place += 1
                continue
            if not self.engine.chunked_prefill and seq.rest > budget:
                break
            drafts = len(self.engine.acceptance) if seq.rest == 1 else 0
            slots = min(seq.rest + drafts, budget)
            take = min(seq.rest, slots)
            cover = seq.computed + take
            while not self.grow(seq, cover):
                victim = self.running[0 if self.engine.preemption == "fifo" else -1]
                place -= self.running.index(victim) < place
                budget += self._preempt(step, victim, taken)
                if victim is seq:
                    return budget
            taken[seq] = (seq.computed, take)
            seq.computed += take
            self.publish(seq)
            budget -= slots
            place += 1
        return budget

    def _preempt(self, step, victim, taken) -> int:
        self.running.remove(victim)
        self.pool.release(victim.blocks)
        victim.blocks = []
        victim.computed = 0
        victim.built = False
        self.waiting.insert(0, victim)
        step.preempted += 1
        return taken.pop(victim, (0, 0))[1]

    def _make_room_for_drafts(self, step, taken) -> None:
        """Blocks for every token that this pass may emit, at the last ones' expense.

        Who is preempted here has computed in vain, and the pass is charged for it.
        """
        for seq in list(self.running):
            left = self.remaining(seq)
            if seq.rest or not left or seq not in self.running:
                continue
            most = 1 if self._prefilled(seq, taken) else 1 + len(self.engine.acceptance)
            while not self.grow(seq, seq.length + min(most, left)):
                victim = self.running[-1]
                work = taken.get(victim, (0, 0))
                self._preempt(step, victim, taken)
                taken[victim] = work
                if victim is seq:
                    break

    def _prefilled(self, seq: Sequence, taken) -> bool:
        """Whether its token comes from a prefill or a recomputation: no drafts then."""
        first = not (seq.generated or seq.built)
        return first or taken.get(seq, (0, 0))[1] > 1

    def _head(self) -> Sequence | None:
        """Next to admit; who comes without KV waits while destinations are asked for."""
        if self.reservations:
            return next((seq for seq in self.waiting if seq.built), None)
        return self.waiting[0] if self.waiting else None

    def _admit(self, step, taken, budget, defer) -> None:
        engine = self.engine
        while len(self.running) < engine.max_sequences:
            seq = self._head()
            if seq is None:
                break
            limit = engine.max_model_len
            new = seq.admissions == 0 and not seq.built
            if (limit is not None and seq.isl >= limit) or (
                new and self.too_large(seq)
            ):
                self.waiting.remove(seq)
                step.rejected.append(seq.request.index)
                continue
            if seq.built:
                reuse = 0
                take = 0
            else:
                hits = self.match(seq)
                active = sum(block.users > 0 for block in hits)
                if self.demand(seq) - active > self.room():
                    break
                reuse = len(hits) * engine.block_size
                rest = seq.length - reuse
                take = min(rest, budget)
                if rest and (
                    not take or (not engine.chunked_prefill and rest > budget)
                ):
                    break
                if defer and rest > 1:
                    break
                fresh = ceil_div(reuse + take, engine.block_size) - len(hits)
                blocks = self.pool.allocate(hits, fresh)
                assert blocks is not None
                seq.blocks = blocks
                seq.computed = reuse
            self.waiting.remove(seq)
            self.running.append(seq)
            seq.admissions += 1
            step.admitted.append((seq.request.index, reuse))
            taken[seq] = (seq.computed, take)
            seq.computed += take
            self.publish(seq)
            budget -= take
            if not take and not budget:
                break

    def _charge(self, step, taken) -> None:
        through = before = prompts = contexts = decoding = 0
        for seq, (computed, take) in taken.items():
            step.scheduled_tokens += take
            step.committed_prefill_tokens += take if computed < seq.isl else 0
            if self.role != "decode" and min(computed + take, seq.isl) > computed:
                prompts += 1
                through += min(computed + take, seq.isl)
                before += computed
        for seq in self.running:
            if seq.rest or not self.remaining(seq):
                continue
            computed, take = taken.get(seq, (seq.computed, 0))
            if seq.generated or not take:
                decoding += 1
                contexts += seq.length
        step.prefill = (prompts, through, before)
        step.decode = (decoding, contexts)

    def _emit(self, step, taken) -> None:
        ready = [seq for seq in self.running if not seq.rest]
        for seq in ready:
            left = self.remaining(seq)
            if self.role == "prefill":
                self._end(step, seq)
                continue
            count = 1 if self._prefilled(seq, taken) else self._burst(left)
            step.tokens.append((seq.request.index, count))
            seq.generated += count
            seq.length += count
            seq.computed += count - 1
            self._trim(seq)
            if count == left:
                self._end(step, seq)

    def _end(self, step: Pass, seq: Sequence) -> None:
        self.running.remove(seq)
        if self.role == "prefill":
            self.held[seq.request.index] = seq
            step.held.append(seq.request.index)
        else:
            self.pool.release(seq.blocks)
            step.finished.append(seq.request.index)

    def _burst(self, left: int) -> int:
        """One token and the leading drafts that are accepted; certainty draws nothing."""
        count = 1
        for rate in self.engine.acceptance:
            if rate < 1.0 and self.draw.uniform() >= rate:
                break
            count += 1
        return min(count, left)

    def _trim(self, seq: Sequence) -> None:
        """Give back the blocks that no draft has filled."""
        if self.engine.acceptance:
            keep = ceil_div(seq.length, self.engine.block_size)
            self.pool.release(seq.blocks[keep:])
            del seq.blocks[keep:]

    # ---- hand-over from prefill to decode -------------------------------------------

    def release_source(self, index: int) -> None:
        """The destination has the KV."""
        self.pool.release(self.held.pop(index).blocks)

    def ask(self, request: Request) -> None:
        """Queue for a destination."""
        seq = Sequence(request, self.output_limit(request))
        self.asked += 1
        seq.order = self.asked
        self.reservations.append(seq)

    def try_reserve(self) -> tuple[int, int] | None:
        """Grant the head of the queue: its index and the tokens that must be moved."""
        if not self.reservations or self.refused_at == self.pool.releases:
            return None
        seq = self.reservations[0]
        blocks = None
        hits = self.resident(seq)
        fresh = ceil_div(seq.isl, self.engine.block_size) - len(hits)
        if len(self.running) < self.engine.max_sequences and self.destination_fits(seq):
            blocks = self.pool.allocate(hits, fresh)
        if blocks is None:
            self.refused_at = self.pool.releases
            return None
        self.refused_at = None
        self.reservations.pop(0)
        seq.blocks = blocks
        self.reserved[seq.request.index] = seq
        return seq.request.index, fresh * self.engine.block_size

    def resident(self, seq: Sequence) -> list[Block]:
        """Blocks that a destination need not receive."""
        return self.leading(seq, seq.isl)

    def destination_fits(self, seq: Sequence) -> bool:
        """Whether a destination may be promised, beyond its prompt's blocks."""
        return True

    def activate(self, index: int) -> None:
        """The KV is here: wait for a slot, in the order of the reservations."""
        seq = self.reserved.pop(index)
        seq.built = True
        seq.computed = seq.isl
        self.publish(seq)
        place = len(self.waiting)
        while place and self.waiting[place - 1].order > seq.order:
            place -= 1
        self.waiting.insert(place, seq)
