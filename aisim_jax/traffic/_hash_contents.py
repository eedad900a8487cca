"""Token identity of traces: one hash id stands for the tokens of one trace block."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from ._chains import Runs, prefix_keys, sequence_keys
from ._contents import Contents


@dataclass(frozen=True)
class HashBlocks(Contents):
    """Every prompt is given by hash ids, block_tokens tokens each, cut to its length.

    label: dense stand-ins of the ids; request r has label[start[r] : start[r + 1]], at
    least ceil(isl / block_tokens) of them. Generated tokens are new.
    """

    label: Int[np.ndarray, " ids"]
    start: Int[np.ndarray, " reqs_and_one"]
    block_tokens: int

    def shares(self) -> bool:
        first = self.label[self.start[:-1][np.diff(self.start) > 0]]
        return np.unique(first).size < first.size

    def block_keys(self, isl_tokens, osl_tokens, block_size):
        runs = _hashed_runs(self, isl_tokens, osl_tokens)
        return sequence_keys(runs, block_size)


@dataclass(frozen=True)
class DeltaBlocks(Contents):
    """Every prompt is the previous prompt of its session, its answer, and new tokens.

    new: hash ids of the new tokens of every request. new_tokens and answer_tokens: their
    number, and that of the answer which later prompts contain. session: of every
    request, sessions numbered by first appearance; turns in row order.
    """

    new: HashBlocks
    new_tokens: Int[np.ndarray, " reqs"]
    answer_tokens: Int[np.ndarray, " reqs"]
    session: Int[np.ndarray, " reqs"]

    def shares(self) -> bool:
        turns = np.bincount(self.session)
        return bool((turns > 1).any()) or self.new.shares()

    def block_keys(self, isl_tokens, osl_tokens, block_size):
        rows = _hashed_runs(self.new, self.new_tokens, self.answer_tokens)
        runs = _joined(rows, self.session)
        blocks = (isl_tokens.astype(np.int64) + osl_tokens) // block_size
        return prefix_keys(sequence_keys(runs, block_size), self.session, blocks)


def _hashed_runs(
    contents: HashBlocks,
    isl_tokens: Int[np.ndarray, " reqs"],
    osl_tokens: Int[np.ndarray, " reqs"],
) -> Runs:
    """One run a hash id that the prompt needs, then one run of new tokens."""
    isl = isl_tokens.astype(np.int64)
    used = -(-isl // contents.block_tokens)
    start = np.concatenate([[0], np.cumsum(used + 1)])
    prompt = np.ones(int(start[-1]), np.bool_)
    prompt[start[1:] - 1] = False
    labels = int(contents.label.max(initial=-1)) + 1
    top = labels + isl.size
    label = np.empty(prompt.size, np.int32 if top < 2**31 else np.int64)
    label[prompt] = _needed(contents, used)
    label[start[1:] - 1] = labels + np.arange(isl.size)
    tokens = np.full(label.size, contents.block_tokens, np.int64)
    partial = np.flatnonzero(used)
    tokens[start[partial + 1] - 2] = isl[partial] - contents.block_tokens * (
        used[partial] - 1
    )
    tokens[start[1:] - 1] = osl_tokens
    return Runs(label, tokens, start)


def _needed(
    contents: HashBlocks, used: Int[np.ndarray, " reqs"]
) -> Int[np.ndarray, " ids"]:
    """The first `used` ids of every row."""
    held = np.diff(contents.start)
    if np.array_equal(held, used):
        return contents.label
    within = np.arange(contents.label.size) - np.repeat(contents.start[:-1], held)
    return contents.label[within < np.repeat(used, held)]


def _joined(rows: Runs, session: Int[np.ndarray, " reqs"]) -> Runs:
    """The rows of every session one after the other, as one sequence."""
    owner = np.repeat(session, np.diff(rows.start))
    # An empty answer must not separate the prompts around it.
    kept = np.flatnonzero(rows.tokens > 0)
    kept = kept[np.argsort(owner[kept], kind="stable")]
    runs = np.bincount(owner[kept], minlength=int(session.max(initial=-1)) + 1)
    start = np.concatenate([[0], np.cumsum(runs)])
    return Runs(rows.label[kept], rows.tokens[kept], start)
