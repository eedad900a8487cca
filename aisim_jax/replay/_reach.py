"""Which questions about pass times a workload can ask of one rank."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Int


class Reach(NamedTuple):
    """Bounds of the passes of one rank; no pass asks for anything beyond them.

    requests: most sequences that decode in one pass, 0 where the role does not decode.
    shortest, longest: tokens of a decoding sequence. prompts: most prompts in one pass,
    0 where the role computes none. prompt: longest prompt. new_tokens: most prompt
    tokens of a pass. pool_tokens: most tokens that the sequences of a pass hold together.
    passes: about how many decode passes are asked for in all (an upper bound).
    """

    requests: int
    shortest: int
    longest: int
    prompts: int
    prompt: int
    new_tokens: int
    pool_tokens: int
    passes: int

    def union(self, other: Reach) -> Reach:
        """Bounds that hold for both; passes add up."""
        return Reach(
            max(self.requests, other.requests),
            min(self.shortest, other.shortest),
            max(self.longest, other.longest),
            max(self.prompts, other.prompts),
            max(self.prompt, other.prompt),
            max(self.new_tokens, other.new_tokens),
            max(self.pool_tokens, other.pool_tokens),
            self.passes + other.passes,
        )

    def covers(self, other: Reach) -> bool:
        """Whether prices for these bounds answer everything within `other`."""
        return self.union(other)._replace(passes=self.passes) == self

    def decode_lengths(self) -> Int[np.ndarray, " requests"]:
        """Largest mean length of n = 1, 2, ... decoding sequences, tokens."""
        n = np.arange(1, self.requests + 1)
        return np.minimum(self.longest, self.pool_tokens // n)

    def prompt_lengths(self) -> Int[np.ndarray, " prompts"]:
        """Largest mean length of n = 1, 2, ... prompts, tokens."""
        n = np.arange(1, self.prompts + 1)
        longest = np.minimum(self.prompt, self.pool_tokens // n)
        return longest[longest >= 1]
