"""KV blocks of one rank with reference counts, a findable set and an LRU list."""

from __future__ import annotations

from collections.abc import Hashable, Iterable


class Block:
    """One physical block; `key` is None while it is not findable."""

    __slots__ = ("key", "users")

    def __init__(self):
        self.key: Hashable | None = None
        self.users = 1


class BlockPool:
    """Counts: free + idle findable + referenced = size."""

    def __init__(self, size: int, caching: bool):
        self.size, self.caching = size, caching
        self.free = size
        self.findable: dict[Hashable, dict[Block, None]] = {}  # copies, oldest first
        self.idle: dict[Block, None] = {}  # findable, unreferenced; least recent first
        self.stored = self.removed = self.releases = 0

    @property
    def referenced(self) -> int:
        return self.size - self.free - len(self.idle)

    def match(self, keys: Iterable[Hashable]) -> list[Block]:
        """Blocks of the longest findable run of leading keys."""
        hits = []
        for key in keys:
            copies = self.findable.get(key)
            if copies is None:
                break
            hits.append(next(iter(copies)))
        return hits

    def allocate(self, hits: list[Block], fresh: int) -> list[Block] | None:
        """The hits, pinned, and `fresh` new blocks; None, and no change, if too few."""
        idle_hits = sum(block.users == 0 for block in hits)
        if self.free + len(self.idle) - idle_hits < fresh:
            return None
        for block in hits:
            self.idle.pop(block, None)
            block.users += 1
        for _ in range(fresh - self.free):
            self._evict()
        self.free -= fresh
        return hits + [Block() for _ in range(fresh)]

    def _evict(self) -> None:
        block = next(iter(self.idle))
        del self.idle[block]
        copies = self.findable[block.key]
        del copies[block]
        if not copies:
            del self.findable[block.key]
            self.removed += 1
        self.free += 1

    def publish(self, block: Block, key: Hashable) -> None:
        """Make a full block findable."""
        if not self.caching or block.key is not None:
            return
        block.key = key
        if key not in self.findable:
            self.findable[key] = {}
            self.stored += 1
        self.findable[key][block] = None

    def release(self, blocks: list[Block]) -> None:
        """Drop one reference of each, last block first."""
        self.releases += 1
        for block in reversed(blocks):
            block.users -= 1
            if block.users == 0:
                if block.key is None:
                    self.free += 1
                else:
                    self.idle[block] = None
