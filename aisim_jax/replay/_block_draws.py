"""Uniform numbers of the speculative-decoding generator: ChaCha with 12 rounds."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, UInt


CONSTANTS = np.array([0x61707865, 0x3320646E, 0x79622D32, 0x6B206574], np.uint32)
COLUMNS = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15))
DIAGONALS = ((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))


def seed_key(seed: int) -> UInt[np.ndarray, " eight"]:
    """Eight words of key: the PCG-XSH-RR expansion of the seed."""
    words, state = [], seed % 2**64
    for _ in range(8):
        state = (state * 6364136223846793005 + 11634580027462260723) % 2**64
        mixed = (((state >> 18) ^ state) >> 27) % 2**32
        turn = state >> 59
        words.append((mixed >> turn | mixed << (32 - turn) % 32) % 2**32)
    return np.array(words, np.uint32)


def _rotated(x: np.ndarray, turn: int) -> np.ndarray:
    return (x << np.uint32(turn)) | (x >> np.uint32(32 - turn))


def uniforms(seed: int, count: int) -> Float[np.ndarray, " count"]:
    """The first `count` numbers in [0, 1): 53 bits of two words, low word first."""
    counters = np.arange(-(-count // 8), dtype=np.uint64)
    start = np.zeros((16, counters.size), np.uint32)
    start[:4], start[4:12] = CONSTANTS[:, None], seed_key(seed)[:, None]
    start[12] = counters & np.uint64(2**32 - 1)
    start[13] = counters >> np.uint64(32)
    x = start.copy()
    for _ in range(6):
        for a, b, c, d in (*COLUMNS, *DIAGONALS):
            for p, q, r, turn in (
                (a, b, d, 16),
                (c, d, b, 12),
                (a, b, d, 8),
                (c, d, b, 7),
            ):
                x[p] += x[q]
                x[r] = _rotated(x[r] ^ x[p], turn)
    words = (x + start).T.reshape(-1, 2).astype(np.uint64)
    whole = words[:, 0] | words[:, 1] << np.uint64(32)
    return ((whole >> np.uint64(11)) * 2.0**-53)[:count]
