"""Block ids against token by token comparison of whole sequences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aisim_jax.traffic import (
    BlockKeys,
    Contents,
    DeltaBlocks,
    HashBlocks,
    SessionHistory,
    SharedPrefix,
    Unique,
)


def rows_of(keys: BlockKeys) -> list[list[int]]:
    return [row.tolist() for row in np.split(keys.ids, keys.start[1:-1])]


def assert_same_identity(
    contents: Contents, sequences: list[list[object]], isl: list[int], block: int
) -> None:
    """Ids are equal exactly where sequences are equal up to the block's end; dense."""
    osl = [len(s) - n for s, n in zip(sequences, isl, strict=True)]
    keys = contents.block_keys(np.array(isl), np.array(osl), block)
    mine = [i for row in rows_of(keys) for i in row]
    names: dict[tuple[object, ...], int] = {}
    expected = [
        names.setdefault(tuple(s[:end]), len(names))
        for s in sequences
        for end in range(block, len(s) + 1, block)
    ]
    assert len(mine) == len(expected)
    assert len(set(zip(mine, expected, strict=True))) == len(names) == keys.distinct
    assert sorted(set(mine)) == list(range(keys.distinct))


def hashed(rows: list[list[int]], block_tokens: int) -> HashBlocks:
    start = np.cumsum([0, *map(len, rows)])
    flat = [i for row in rows for i in row]
    return HashBlocks(np.array(flat, np.int64), start, block_tokens)


def tokens_of(ids: list[int], block_tokens: int, count: int) -> list[object]:
    repeated: list[object] = [i for i in ids for _ in range(block_tokens)]
    return repeated[:count]


def new(row: int, count: int) -> list[object]:
    return [("new", row, k) for k in range(count)]


ROWS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 3), min_size=1, max_size=5),
        st.integers(0, 3),
        st.integers(0, 9),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=200, deadline=None)
@given(ROWS, st.sampled_from([1, 2, 3, 4, 5, 8, 12]))
def test_hash_ids_mean_their_tokens_at_any_engine_block(rows, block):
    ids = [row[0] for row in rows]
    isl = [len(i) * 4 - cut for i, cut, _ in rows]
    sequences = [
        tokens_of(i, 4, n) + new(r, osl)
        for r, (i, n, (_, _, osl)) in enumerate(zip(ids, isl, rows, strict=True))
    ]
    assert_same_identity(hashed(ids, 4), sequences, isl, block)


@settings(max_examples=200, deadline=None)
@given(ROWS, st.data(), st.sampled_from([1, 3, 4, 8]))
def test_a_delta_prompt_is_the_history_and_the_new_tokens(rows, data, block):
    drawn = data.draw(
        st.lists(st.integers(0, 2), min_size=len(rows), max_size=len(rows))
    )
    session = np.unique(drawn, return_inverse=True)[1].astype(np.int64)
    fresh = [len(ids) * 4 - cut for ids, cut, _ in rows]
    answer = [1 + osl for _, _, osl in rows]
    history: dict[int, list[object]] = {}
    sequences, isl = [], []
    for r, (ids, _, _) in enumerate(rows):
        prompt = history.get(session[r], []) + tokens_of(ids, 4, fresh[r])
        history[session[r]] = prompt + new(r, answer[r])
        isl.append(len(prompt))
        sequences.append(history[session[r]])
    contents = DeltaBlocks(
        hashed([row[0] for row in rows], 4), np.array(fresh), np.array(answer), session
    )
    assert_same_identity(contents, sequences, isl, block)


def test_an_empty_answer_does_not_separate_two_prompts():
    contents = DeltaBlocks(
        hashed([[1], [7], [1, 7]], 4),
        np.array([4, 4, 8]),
        np.array([0, 1, 1]),
        np.array([0, 0, 1]),
    )
    keys = contents.block_keys(np.array([4, 8, 8]), np.array([0, 1, 1]), 4)
    assert rows_of(keys) == [[0], [0, 1], [0, 1]]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(0, 9)), min_size=1, max_size=6),
    st.integers(0, 20),
    st.sampled_from([1, 3, 8]),
)
def test_a_shared_prefix_ends_at_its_token(lengths, prefix, block):
    isl = [n for n, _ in lengths]
    sequences = []
    for r, (n, osl) in enumerate(lengths):
        shared = min(prefix, n)
        common: list[object] = list(range(shared))
        sequences.append(common + new(r, n - shared + osl))
    assert_same_identity(SharedPrefix(prefix), sequences, isl, block)


def test_a_session_contains_its_history_and_its_group_shares_the_beginning():
    contents = SessionHistory(
        session=np.array([0, 0, 1, 1, 2]), group=np.array([1, 1, 0]), shared_tokens=6
    )
    common = {g: [("group", g, k) for k in range(6)] for g in (0, 1)}
    whole = [common[1] + new(0, 30), common[1] + new(1, 30), common[0] + new(2, 30)]
    isl, length = [10, 24, 10, 20, 9], [14, 30, 12, 22, 9]
    sequences = [whole[s][:n] for s, n in zip([0, 0, 1, 1, 2], length, strict=True)]
    for block in (2, 3, 4):
        assert_same_identity(contents, sequences, isl, block)


def test_unique_prompts_share_nothing():
    assert not Unique().shares()
    assert_same_identity(Unique(), [new(0, 9), new(1, 7)], [5, 7], 2)


def test_order_of_ids_matters():
    keys = hashed([[1, 2], [2, 1]], 4).block_keys(np.array([8, 8]), np.array([0, 0]), 4)
    first, second = rows_of(keys)
    assert not set(first) & set(second)


def test_a_partial_last_id_is_shared_up_to_the_shorter_prompt():
    keys = hashed([[1, 2], [1, 2]], 512).block_keys(
        np.array([600, 700]), np.array([0, 0]), 64
    )
    short, long = rows_of(keys)
    assert len(short) * 64 == 576
    assert long[: len(short)] == short


def test_parts_of_one_trace_block_differ_from_each_other():
    keys = hashed([[7]], 512).block_keys(np.array([512]), np.array([0]), 64)
    assert keys.ids.tolist() == list(range(8))


@pytest.mark.parametrize(
    ("rows", "shares"), [([[1, 2], [2, 1]], False), ([[1], [1, 2]], True)]
)
def test_prompts_share_when_they_begin_alike(rows, shares):
    assert hashed(rows, 16).shares() is shares


def test_no_request_has_no_block():
    empty = np.zeros(0, np.int64)
    keys = hashed([], 16).block_keys(empty, empty, 4)
    assert keys.ids.size == keys.distinct == 0


def test_slices_of_many_blocks_join_without_a_gap():
    isl = np.array([3_000_000, 1, 2_500_000])
    keys = SharedPrefix(100).block_keys(isl, np.zeros(3, np.int64), 1)
    assert keys.distinct == 100 + isl.sum() - 100 - 1 - 100
    assert np.array_equal(np.unique(keys.ids), np.arange(keys.distinct))
