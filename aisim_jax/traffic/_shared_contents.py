"""Token identity of synthetic prompts: a common beginning, or a session's history."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from ._chains import Runs, prefix_keys, sequence_keys
from ._contents import Contents


@dataclass(frozen=True)
class SharedPrefix(Contents):
    """The first `tokens` prompt tokens are the same in all requests."""

    tokens: int

    def shares(self) -> bool:
        return self.tokens > 0

    def block_keys(self, isl_tokens, osl_tokens, block_size):
        shared = np.minimum(isl_tokens.astype(np.int64), self.tokens)
        own = isl_tokens + osl_tokens - shared
        return sequence_keys(_two_runs(np.zeros_like(shared), shared, own), block_size)


@dataclass(frozen=True)
class SessionHistory(Contents):
    """A session's prompts continue each other: prompt, answer, new tokens, answer, ...

    session: of every request. group: of every session; the first shared_tokens tokens of
    its sessions are the same.
    """

    session: Int[np.ndarray, " reqs"]
    group: Int[np.ndarray, " sessions"]
    shared_tokens: int = 0

    def shares(self) -> bool:
        return True

    def block_keys(self, isl_tokens, osl_tokens, block_size):
        tokens = isl_tokens.astype(np.int64) + osl_tokens
        longest = np.zeros(self.group.size, np.int64)
        np.maximum.at(longest, self.session, tokens)
        shared = np.minimum(longest, self.shared_tokens)
        runs = _two_runs(self.group, shared, longest - shared)
        return prefix_keys(
            sequence_keys(runs, block_size), self.session, tokens // block_size
        )


def _two_runs(
    group: Int[np.ndarray, " seqs"],
    shared_tokens: Int[np.ndarray, " seqs"],
    own_tokens: Int[np.ndarray, " seqs"],
) -> Runs:
    """A run that a group shares, then a run of one's own."""
    count = group.size
    groups = int(group.max(initial=0)) + 1
    label = np.stack([group, groups + np.arange(count)], axis=1).ravel()
    tokens = np.stack([shared_tokens, own_tokens], axis=1).ravel()
    return Runs(label, tokens, np.arange(0, 2 * count + 1, 2))
