"""One rank of the SGLang scheduler, slow and obvious: lists, dicts, a radix tree of nodes.

Written from the behavioural specification. Every method does what one sentence says.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field


CHUNKED_PREFILL_TOKENS = 8192
MAX_PREFILL_TOKENS = 16384
CLIP_TOKENS = 4096
RATIO_INITIAL = 0.7
RATIO_FLOOR = RATIO_INITIAL * 0.14
RATIO_STEPS = 600
RETRACT_STEPS = 20

EXTEND = True
Price = Callable[..., int]


class Node:
    """One compressed edge: the page ids from its parent to itself."""

    def __init__(self, key: list[int], parent: Node | None, stamp: int):
        self.key = key
        self.parent = parent
        self.stamp = stamp
        self.children: dict[int, Node] = {}
        self.locks = 0


class Tree:
    """Radix tree over chained page ids, with LRU eviction of unlocked leaves."""

    def __init__(self):
        self.root = Node([], None, 0)
        self.root.locks = 1
        self.clock = 0
        self.evictable_pages = 0
        self.evicted_pages = 0

    def _walk(self, pages: list[int]) -> tuple[Node, int]:
        """Deepest node on the path and its depth; splits the edge it ends within."""
        self.clock += 1
        node, depth = self.root, 0
        while depth < len(pages) and pages[depth] in node.children:
            node = node.children[pages[depth]]
            node.stamp = self.clock
            same = 0
            while (
                same < len(node.key)
                and depth + same < len(pages)
                and node.key[same] == pages[depth + same]
            ):
                same += 1
            if same < len(node.key):
                node = self._split(node, same)
            depth += same
        return node, depth

    def _split(self, node: Node, at: int) -> Node:
        upper = Node(node.key[:at], node.parent, node.stamp)
        upper.locks = node.locks
        assert node.parent is not None
        node.parent.children[upper.key[0]] = upper
        node.key = node.key[at:]
        node.parent = upper
        upper.children[node.key[0]] = node
        return upper

    def match(self, pages: list[int]) -> tuple[Node, int]:
        return self._walk(pages)

    def peek(self, pages: list[int]) -> int:
        """Length of the match, without use."""
        node, depth = self.root, 0
        while depth < len(pages) and pages[depth] in node.children:
            node = node.children[pages[depth]]
            for own in node.key:
                if depth == len(pages) or own != pages[depth]:
                    return depth
                depth += 1
        return depth

    def insert(self, pages: list[int], own: Node | None) -> tuple[Node, int]:
        """Node that ends the sequence, and how many leading pages were already there.

        A leaf that only `own`'s holder uses grows; anything else gets a child.
        """
        node, depth = self._walk(pages)
        alone = node.locks == (1 if node is own else 0) and not node.children
        if depth < len(pages) and EXTEND and alone and node is not self.root:
            if node.locks == 0:
                self.evictable_pages += len(pages) - depth
            node.key += pages[depth:]
            return node, depth
        if depth < len(pages):
            leaf = Node(pages[depth:], node, self.clock)
            node.children[pages[depth]] = leaf
            self.evictable_pages += len(leaf.key)
            return leaf, depth
        return node, depth

    def lock(self, node: Node | None):
        while node is not None and node.parent is not None:
            if node.locks == 0:
                self.evictable_pages -= len(node.key)
            node.locks += 1
            node = node.parent

    def unlock(self, node: Node | None):
        while node is not None and node.parent is not None:
            node.locks -= 1
            if node.locks == 0:
                self.evictable_pages += len(node.key)
            node = node.parent

    def _leaves(self) -> list[Node]:
        out, stack = [], [self.root]
        while stack:
            node = stack.pop()
            stack.extend(node.children.values())
            if node.parent is not None and not node.children and node.locks == 0:
                out.append(node)
        return out

    def evict(self, pages: int) -> int:
        """Remove up to so many pages, oldest leaf first, tail pages first."""
        removed = 0
        while removed < pages:
            leaves = self._leaves()
            if not leaves:
                break
            leaf = min(leaves, key=lambda n: n.stamp)
            cut = min(len(leaf.key), pages - removed)
            if cut == len(leaf.key):
                assert leaf.parent is not None
                del leaf.parent.children[leaf.key[0]]
            else:
                leaf.key = leaf.key[:-cut]
            removed += cut
        self.evictable_pages -= removed
        self.evicted_pages += removed
        return removed


@dataclass(eq=False)
class Request:
    """What the scheduler knows of one request; tokens."""

    index: int
    prompt: int
    output: int
    pages: list[int]
    generated: int = 0
    owned: int = 0  # tokens with KV: reused, computed or decoded
    admitted: bool = False
    node: Node | None = None
    cached_pages: int = 0  # leading full pages that are in the tree (and locked)
    held_pages: int = 0  # pages of its own, not in the tree
    admissions: int = 0

    @property
    def length(self) -> int:
        return self.prompt + self.generated

    @property
    def remaining(self) -> int:
        return self.output - self.generated


@dataclass
class Pass:
    """What one pass does; the loop makes it visible when the pass ends."""

    prefill_ns: int = 0
    decode_ns: int = 0
    tokens: list[Request] = field(default_factory=list)
    finished: list[Request] = field(default_factory=list)
    rejected: list[Request] = field(default_factory=list)
    admitted: list[tuple[Request, int]] = field(default_factory=list)
    retracted: list[Request] = field(default_factory=list)
    prefill: tuple[int, int, int] = (0, 0, 0)
    decode: tuple[int, int] = (0, 0)
    scheduled: bool = False
    deferred: bool = False
    ratio_changed: bool = False
    worked: bool = False
    prefilled: bool = False

    @property
    def effect(self) -> bool:
        return bool(
            self.tokens
            or self.finished
            or self.rejected
            or self.scheduled
            or self.retracted
            or self.deferred
        )


class Rank:
    """Scheduler, page pool and radix tree of one rank."""

    def __init__(
        self,
        *,
        page: int,
        pages: int,
        slots: int,
        max_model_len: int | None,
        interval: int,
        prefill_ns: Price,
        decode_ns: Price,
        caching: bool = True,
        chunk: int = CHUNKED_PREFILL_TOKENS,
    ):
        self.page, self.pages, self.slots = page, pages, slots
        self.limit, self.interval = max_model_len, interval
        self.prefill_ns, self.decode_ns = prefill_ns, decode_ns
        self.caching, self.chunk = caching, chunk
        self.free = pages
        self.tree = Tree()
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.ratio = RATIO_INITIAL
        self.hold = 0
        self.committed = 0
        self.peak_pages = 0

    def submit(self, request: Request):
        if self.limit is not None:
            request.output = min(request.output, max(0, self.limit - request.prompt))
        self.waiting.append(request)

    @property
    def has_work(self) -> bool:
        return bool(self.waiting or self.running)

    # pages

    def _ceil(self, tokens: int) -> int:
        return -(-tokens // self.page)

    def _make_room(self, pages: int) -> bool:
        if self.free < pages:
            self.free += self.tree.evict(pages - self.free)
        return self.free >= pages

    def _take(self, pages: int):
        self.free -= pages
        assert self.free >= 0
        self.peak_pages = max(
            self.peak_pages, self.pages - self.free - self.tree.evictable_pages
        )

    def _store(self, request: Request):
        """Put the full pages of the computed tokens into the tree; drop duplicates."""
        if not self.caching:
            return
        full = request.owned // self.page
        node, known = self.tree.insert(request.pages[:full], request.node)
        self.tree.lock(node)
        self.tree.unlock(request.node)
        self.free += max(0, known - request.cached_pages)
        request.held_pages -= full - request.cached_pages
        request.cached_pages = full
        request.node = node

    def _release(self, request: Request):
        self.tree.unlock(request.node)
        self.free += request.held_pages
        request.node, request.held_pages, request.cached_pages = None, 0, 0
        request.owned, request.admitted = 0, False

    def _token(self, request: Request):
        """One more token with a KV slot; its page was counted before."""
        if request.owned % self.page == 0:
            self._take(1)
            request.held_pages += 1
        request.owned += 1
        request.generated += 1
        if request.owned % self.page == 0:
            self._store(request)

    def _needed(self, requests: list[Request]) -> int:
        return sum(r.owned % self.page == 0 for r in requests)

    # one pass

    def step(self) -> Pass:
        out = Pass()
        self._reject(out)
        if self.hold > 0:
            self.hold -= 1
            out.deferred = True
            batch: list[tuple[Request, int, int]] = []
        else:
            batch = self._admit(out)
        if batch:
            self._prefill(out, batch)
        else:
            self._decode(out)
        return out

    def _reject(self, out: Pass):
        if self.limit is None:
            return
        out.rejected = [r for r in self.waiting if r.prompt >= self.limit]
        if out.rejected:
            self.waiting = deque(r for r in self.waiting if r.prompt < self.limit)

    def _admit(self, out: Pass) -> list[tuple[Request, int, int]]:
        reserved = sum(min(r.remaining, CLIP_TOKENS) * self.ratio for r in self.running)
        total = (self.free + self.tree.evictable_pages) * self.page - reserved
        left, left_chunk = MAX_PREFILL_TOKENS, self.chunk
        batch: list[tuple[Request, int, int]] = []
        partial = None
        while self.waiting and len(self.running) + len(batch) < self.slots:
            r = self.waiting[0]
            node, reuse = None, 0
            if not r.admitted and self.caching:
                usable = r.length - (1 if r.output > 0 else 0)
                reuse = self.tree.peek(r.pages[: usable // self.page]) * self.page
            before = max(r.owned, reuse)
            need = r.length - before
            if need <= left_chunk:
                chunk, reserve = need, min(r.remaining, CLIP_TOKENS)
            else:
                chunk, reserve = left_chunk // self.page * self.page, 0
                if chunk == 0:
                    break
            cost = self._ceil(chunk) * self.page
            if cost + reserve >= total or cost > left or cost > left_chunk:
                break
            if not r.admitted and self.caching:
                node, _ = self.tree.match(r.pages[: reuse // self.page])
            self.tree.lock(node)
            if not self._make_room(self._ceil(chunk)):
                self.tree.unlock(node)
                break
            self._take(self._ceil(chunk))
            self.waiting.popleft()
            if not r.admitted:
                r.admitted, r.node = True, node
                r.cached_pages = reuse // self.page
                r.admissions += 1
                out.admitted.append((r, reuse))
            r.held_pages += self._ceil(chunk)
            r.owned = before + chunk
            total -= cost + reserve
            left -= cost
            left_chunk -= cost
            batch.append((r, before, chunk))
            if r.owned < r.length:
                partial = r
            if left_chunk <= 0:
                break
        if partial is not None:
            self.waiting.appendleft(partial)
        return batch

    def _prefill(self, out: Pass, batch: list[tuple[Request, int, int]]):
        out.scheduled = True
        n = through = prefix = 0
        for _r, before, chunk in batch:
            end = before + chunk
            if chunk > 0:
                n += 1
                through += end
                prefix += before
            self.committed += chunk
        out.prefill = (n, through, prefix)
        if n:
            out.prefill_ns = self.prefill_ns(n, through // n, prefix // n)
        done = [r for r, _, _ in batch if r.owned == r.length]
        more = [r for r in done if r.remaining > 1]
        self._make_room(self._needed(more))
        for r, _, _ in batch:
            self._store(r)
        room = self.free >= self._needed(more)
        self.running += done
        if any(chunk for _, _, chunk in batch):
            out.prefilled = True
            out.worked = True
        for r in done:
            if r.remaining <= 1:
                if r.remaining == 1:
                    r.generated += 1
                    out.tokens.append(r)
                self._finish(out, r)
            elif room:
                self._token(r)
                out.tokens.append(r)

    def _finish(self, out: Pass, r: Request):
        self._store(r)
        self.running.remove(r)
        out.finished.append(r)
        self._release(r)

    def _decode(self, out: Pass):
        def short() -> bool:
            needed = self._needed(self.running)
            return self.free + self.tree.evictable_pages < needed

        while short() and len(self.running) > 1:
            victim = min(reversed(self.running), key=lambda r: (r.generated, -r.prompt))
            self.running.remove(victim)
            self._release(victim)
            self.waiting.append(victim)
            out.retracted.append(victim)
            want = RETRACT_STEPS * len(self.running)
            if self.free * self.page < want:
                self.free += self.tree.evict(self._ceil(want - self.free * self.page))
        old = self.ratio
        if out.retracted:
            made = sum(r.generated for r in self.running)
            asked = sum(r.output for r in self.running)
            self.ratio = min(
                1.0, (made + RETRACT_STEPS * len(self.running)) / (asked + 1)
            )
        else:
            step = (RATIO_INITIAL - RATIO_FLOOR) / RATIO_STEPS
            self.ratio = max(self.ratio - step, RATIO_FLOOR)
        out.ratio_changed = self.ratio != old
        if not self.running or not self._make_room(self._needed(self.running)):
            return
        n, context = len(self.running), sum(r.length for r in self.running)
        out.decode = (n, context)
        out.decode_ns = self.decode_ns(n, context)
        out.worked = out.scheduled = True
        for r in list(self.running):
            self._token(r)
            out.tokens.append(r)
            if r.remaining == 0:
                self._finish(out, r)
