"""Which prompts share which tokens, as dense ids of chained blocks."""

from __future__ import annotations

import abc
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int


@dataclass(frozen=True)
class BlockKeys:
    """Ids of the full blocks of every sequence (prompt, then output), one row a request.

    Row r is ids[start[r] : start[r + 1]], block by block. Two ids are equal exactly when
    the whole sequences up to the end of those blocks are equal token by token. Ids are
    dense: 0 .. distinct - 1.
    """

    ids: Int[np.ndarray, " blocks"]
    start: Int[np.ndarray, " reqs_and_one"]
    distinct: int


class Contents(abc.ABC):
    """Token identity of prompts; generated tokens are always new."""

    @abc.abstractmethod
    def shares(self) -> bool:
        """Whether any two requests can have a token block in common."""

    @abc.abstractmethod
    def block_keys(
        self,
        isl_tokens: Int[np.ndarray, " reqs"],
        osl_tokens: Int[np.ndarray, " reqs"],
        block_size: int,
    ) -> BlockKeys:
        """Ids of all full blocks at this block size."""


class Unique(Contents):
    """No two prompts share anything."""

    def shares(self) -> bool:
        return False

    def block_keys(self, isl_tokens, osl_tokens, block_size):
        whole = (isl_tokens.astype(np.int64) + osl_tokens) // block_size
        start = np.concatenate([[0], np.cumsum(whole)])
        total = int(start[-1])
        return BlockKeys(np.arange(total, dtype=np.int32), start, total)
