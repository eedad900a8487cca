"""Arrivals and token identities of the sources, in plain Python."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Any

from .replay_inputs import Request


MASK32, MASK64 = 2**32 - 1, 2**64 - 1
BlockKey = Callable[[int, int, int], Hashable]


class ChaCha12:
    """Random words of a seed: ChaCha of 12 rounds, keyed by a PCG-XSH-RR expansion."""

    def __init__(self, seed: int):
        self.key, state = [], seed & MASK64
        for _ in range(8):
            state = (state * 6364136223846793005 + 11634580027462260723) & MASK64
            x = (((state >> 18) ^ state) >> 27) & MASK32
            turn = state >> 59
            self.key.append((x >> turn | x << (32 - turn) % 32) & MASK32)
        self.counter, self.words = 0, []

    def _block(self) -> list[int]:
        constants = [0x61707865, 0x3320646E, 0x79622D32, 0x6B206574]
        counter = [self.counter & MASK32, self.counter >> 32, 0, 0]
        start = constants + self.key + counter
        x = list(start)

        def quarter(a, b, c, d):
            for p, q, r, turn in (
                (a, b, d, 16),
                (c, d, b, 12),
                (a, b, d, 8),
                (c, d, b, 7),
            ):
                x[p] = (x[p] + x[q]) & MASK32
                x[r] ^= x[p]
                x[r] = (x[r] << turn | x[r] >> (32 - turn)) & MASK32

        for _ in range(6):
            for i in range(4):
                quarter(i, i + 4, i + 8, i + 12)
            for i in range(4):
                quarter(i, (i + 1) % 4 + 4, (i + 2) % 4 + 8, (i + 3) % 4 + 12)
        self.counter += 1
        return [(a + b) & MASK32 for a, b in zip(x, start, strict=True)]

    def u32(self) -> int:
        if not self.words:
            self.words = self._block()
        return self.words.pop(0)

    def u64(self) -> int:
        low = self.u32()
        return low | self.u32() << 32

    def uniform(self) -> float:
        """In [0, 1)."""
        return (self.u64() >> 11) * 2.0**-53


def constant_rate(count: int, per_second: float) -> list[float]:
    """Equal gaps from 0, accumulated, ms."""
    arrivals = [0.0]
    while len(arrivals) < count:
        arrivals.append(arrivals[-1] + 1000.0 / per_second)
    return arrivals[:count]


def poisson(count: int, per_second: float, seed: int = 42) -> list[float]:
    """Exponential gaps from 0, accumulated, ms."""
    draw, arrivals = ChaCha12(seed), [0.0]
    while len(arrivals) < count:
        gap = -(1000.0 / per_second) * math.log(1.0 - draw.uniform())
        arrivals.append(arrivals[-1] + gap)
    return arrivals[:count]


def unique(request: int, block_size: int, b: int) -> Hashable:
    """No prompt shares anything."""
    return ("own", request, b)


def shared_prefix(tokens: int) -> BlockKey:
    """The first `tokens` tokens are the same in every prompt."""

    def key(request: int, block_size: int, b: int) -> Hashable:
        if (b + 1) * block_size <= tokens:
            return ("shared", b)
        return ("own", request, b)

    return key


def session_history(
    requests: list[Request],
    prefix_blocks: Callable[[int, int], int] | None = None,
    group: Callable[[int], Hashable] | None = None,
) -> BlockKey:
    """Each prompt continues its session's history.

    The first prefix_blocks(isl of turn 0, block size) blocks are those of the group.
    """
    first = {r.session: r.isl for r in requests if r.turn == 0}

    def key(request: int, block_size: int, b: int) -> Hashable:
        session = requests[request].session
        if prefix_blocks and group and b < prefix_blocks(first[session], block_size):
            return ("group", group(session), b)
        return ("session", session, b)

    return key


def hashed_blocks(
    requests: list[Request], hash_ids: list[list[int]], trace_block: int
) -> BlockKey:
    """Token identity is a hash id repeated trace_block times; keys are chained."""
    names: dict[Hashable, int] = {}
    chains: dict[tuple[int, int], list[int]] = {}

    def chain(request: int, block_size: int) -> list[int]:
        row, previous, keys = requests[request], -1, []
        for start in range(0, row.isl - block_size + 1, block_size):
            content, at = [], start
            while at < start + block_size:
                end = min((at // trace_block + 1) * trace_block, start + block_size)
                content.append((hash_ids[request][at // trace_block], end - at))
                at = end
            link = (block_size, previous, tuple(content))
            previous = names.setdefault(link, len(names))
            keys.append(previous)
        return keys

    def key(request: int, block_size: int, b: int) -> Hashable:
        known = chains.get((request, block_size))
        if known is None:
            known = chains[request, block_size] = chain(request, block_size)
        return known[b] if b < len(known) else ("own", request, b)

    return key


def mooncake(
    rows: list[dict[str, Any]], trace_block: int, speedup: float = 1.0
) -> tuple[list[Request], list[str], BlockKey]:
    """Requests in file order, their session names, and their token identities."""
    zero = min((row["timestamp"] for row in rows if "timestamp" in row), default=0.0)
    sessions: dict[str, int] = {}
    requests: list[Request] = []
    names: list[str] = []
    last: dict[str, tuple[int, float | None]] = {}
    for line, row in enumerate(rows):
        name = row.get("session_id", f"request_{line + 1}")
        turn, before = last.get(name, (-1, None))
        stamp = (row["timestamp"] - zero) / speedup if "timestamp" in row else None
        delay = 0.0
        if turn >= 0 and "delay" in row:
            delay = row["delay"] / speedup
        elif stamp is not None and before is not None:
            delay = stamp - before
        last[name] = (turn + 1, before if stamp is None else stamp)
        requests.append(
            Request(
                index=line,
                isl=row["input_length"],
                osl=row["output_length"],
                arrival_ms=stamp or 0.0,
                session=sessions.setdefault(name, len(sessions)),
                turn=turn + 1,
                delay_ms=delay,
            )
        )
        names.append(name)
    hash_ids = [row["hash_ids"] for row in rows]
    return requests, names, hashed_blocks(requests, hash_ids, trace_block)


def read_jsonl(path: Path) -> Iterable[dict[str, Any]]:
    """Rows of a JSON-lines file."""
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def synthetic_sessions(
    source: dict[str, Any], arrivals: list[float]
) -> tuple[list[Request], BlockKey]:
    """Sessions whose every prompt is the history plus new tokens."""
    shape = source["session"]
    new, out = source["new_input_tokens_per_turn"], source["output_tokens_per_turn"]
    requests = []
    for session, at in enumerate(arrivals):
        for turn in range(shape["turns"]):
            requests.append(
                Request(
                    index=len(requests),
                    isl=new + turn * (new + out),
                    osl=out,
                    arrival_ms=at,
                    session=session,
                    turn=turn,
                    delay_ms=shape["inter_turn_delay_ms"] if turn else 0.0,
                )
            )
    ratio = shape["shared_prefix_ratio"]
    if not ratio or not shape["prefix_groups"]:
        return requests, session_history(requests)
    draw = ChaCha12(0)
    groups = [draw.u32() * shape["prefix_groups"] >> 32 for _ in arrivals]

    def prefix_blocks(isl: int, block_size: int) -> int:
        blocks = int(-(-isl // block_size) * ratio + 0.5)
        return min(blocks, isl // block_size)

    return requests, session_history(requests, prefix_blocks, groups.__getitem__)
