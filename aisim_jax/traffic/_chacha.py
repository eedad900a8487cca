"""The reference's random words: ChaCha of 12 rounds, keyed by an expanded 64-bit seed."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, UInt


_MASK32, _MASK64 = 2**32 - 1, 2**64 - 1
_CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)
_COLUMNS = tuple((i, i + 4, i + 8, i + 12) for i in range(4))
_DIAGONALS = tuple(
    (i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4) for i in range(4)
)


def words(seed: int, count: int) -> UInt[np.ndarray, " words"]:
    """The first `count` 32-bit words of a seed in 0 .. 2^64 - 1."""
    blocks = -(-count // 16)
    counter = np.arange(blocks, dtype=np.uint64)
    start = np.empty((16, blocks), np.uint32)
    start[:4] = np.array(_CONSTANTS, np.uint32)[:, None]
    start[4:12] = _key(seed)[:, None]
    start[12] = counter & np.uint64(_MASK32)
    start[13] = counter >> np.uint64(32)
    start[14:] = 0
    state = start.copy()
    for _ in range(6):
        for a, b, c, d in (*_COLUMNS, *_DIAGONALS):
            _quarter_round(state[a], state[b], state[c], state[d])
    state += start
    return state.T.ravel()[:count]


def uniforms(seed: int, count: int) -> Float[np.ndarray, " draws"]:
    """The first `count` numbers in [0, 1) of a seed: (64 bits >> 11) * 2^-53."""
    low, high = words(seed, 2 * count).astype(np.uint64).reshape(-1, 2).T
    draws = low | high << np.uint64(32)
    return (draws >> np.uint64(11)).astype(np.float64) * 2.0**-53


def below(limit: int, seed: int, count: int) -> list[int]:
    """The first `count` integers in 0 .. limit - 1 of a seed; limit < 2^32.

    high word of (word * limit); where the low word says that the next word could carry
    into it, that word is drawn too.
    """
    drawn: list[int] = []
    stream = iter(words(seed, 2 * count).tolist())
    while len(drawn) < count:
        value, rest = divmod(next(stream) * limit, 2**32)
        if rest > 2**32 - limit:
            value += (rest + (next(stream) * limit >> 32)) >> 32
        drawn.append(value)
    return drawn


def _key(seed: int) -> UInt[np.ndarray, " words"]:
    """Eight words of a PCG-XSH-RR stream that starts at the seed."""
    state, key = seed & _MASK64, []
    for _ in range(8):
        state = (state * 6364136223846793005 + 11634580027462260723) & _MASK64
        x = ((state >> 18 ^ state) >> 27) & _MASK32
        turn = state >> 59
        key.append((x >> turn | x << (32 - turn)) & _MASK32)
    return np.array(key, np.uint32)


def _quarter_round(
    a: UInt[np.ndarray, " blocks"],
    b: UInt[np.ndarray, " blocks"],
    c: UInt[np.ndarray, " blocks"],
    d: UInt[np.ndarray, " blocks"],
) -> None:
    """One quarter round on rows of the state, in place."""
    for left, right, target, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8)):
        _add_and_rotate(left, right, target, turn)
    _add_and_rotate(c, d, b, 7)


def _add_and_rotate(
    left: UInt[np.ndarray, " blocks"],
    right: UInt[np.ndarray, " blocks"],
    target: UInt[np.ndarray, " blocks"],
    turn: int,
) -> None:
    left += right
    target ^= left
    target[:] = target << np.uint32(turn) | target >> np.uint32(32 - turn)
