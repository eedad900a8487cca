"""The batched, the scalar and the breakdown path give one answer to one question."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_level_cases import PlainPath, compiled

from aisim_jax import models as m
from aisim_jax.estimators import OpLevelBatch
from aisim_jax.estimators._breakdown import Query, price_entries
from aisim_jax.kernels._work import planned_work
from aisim_jax.systems import load_tables


RTOL = 1e-9
COUNT = 12  # queries per drawn example: values vary, shapes do not
DRAWS = settings(max_examples=8, deadline=None)
SCENARIOS = {
    "dense": (
        "Qwen/Qwen3-32B-FP8",
        ("h200_sxm", "trtllm"),
        ({"tp": 1}, {"tp": 2}, {"tp": 4, "pp": 2}, {"tp": 8}),
    ),
    "experts": (
        "Qwen/Qwen3-30B-A3B",
        ("b200_sxm", "vllm"),
        (
            {"tp": 1},
            {"tp": 4, "moe_tp": 4},
            {"dp": 4, "moe_ep": 4},
            {"tp": 2, "moe_ep": 2},
        ),
    ),
    "latent": (
        "deepseek-ai/DeepSeek-V3",
        ("h200_sxm", "sglang"),
        (
            {"tp": 8, "moe_ep": 8},
            {"dp": 8, "moe_ep": 8},
            {"tp": 4, "dp": 2, "moe_ep": 8},
        ),
    ),
}


class Paths(NamedTuple):
    """One stack and the scalar path of each of its lanes."""

    batch: OpLevelBatch
    plain: list[PlainPath]
    singles: list[OpLevelBatch]

    def lanes(self, seed: int) -> np.ndarray:
        return np.random.default_rng(seed).integers(len(self.plain), size=COUNT)


@pytest.fixture(scope="module", params=SCENARIOS)
def paths(request: pytest.FixtureRequest) -> Paths:
    name, place, sizes = SCENARIOS[request.param]
    tables, spec = load_tables(*place), m.load_model(name)
    layouts = [m.Layout(**parallel) for parallel in sizes]
    batch = compiled(tables, spec, layouts)
    plain = [PlainPath(batch, lane) for lane in range(len(layouts))]
    singles = [compiled(tables, spec, [layout]) for layout in layouts]
    return Paths(batch, plain, singles)


def whole(low: int, high: int) -> st.SearchStrategy[int]:
    """Whole numbers, small and large ones alike."""
    bits = st.integers(low.bit_length(), high.bit_length())
    return bits.flatmap(
        lambda b: st.integers(max(low, 1 << b >> 1), min(high, (1 << b) - 1))
    )


def many(*each: st.SearchStrategy[int]) -> st.SearchStrategy[list[tuple[int, ...]]]:
    return st.lists(st.tuples(*each), min_size=COUNT, max_size=COUNT)


prefills = many(whole(1, 400), whole(1, 250), whole(0, 100_000))
decodes = many(whole(1, 3000), whole(1, 150_000))
steps = many(
    whole(1, 60_000), whole(0, 1000), whole(2, 40_000), whole(1, 4000), whole(0, 20_000)
)
seeds = st.integers(0, 1000)


def close(got: Any, want: Any) -> None:
    np.testing.assert_allclose(
        np.asarray(got, float), np.asarray(want, float), rtol=RTOL
    )


@given(queries=prefills, seed=seeds)
@DRAWS
def test_prefills_have_one_price(paths: Paths, queries: list, seed: int) -> None:
    lanes = paths.lanes(seed)
    counts = [(b, new + held, held) for b, new, held in queries]
    got = paths.batch.prefill_ms(lanes, *np.array(counts, float).T)
    close(
        got, [paths.plain[i].prefill_ms(*q) for i, q in zip(lanes, counts, strict=True)]
    )
    close(
        got,
        [breakdown_prefill(paths, i, *q) for i, q in zip(lanes, counts, strict=True)],
    )


@given(queries=decodes, seed=seeds)
@DRAWS
def test_decode_steps_have_one_price(paths: Paths, queries: list, seed: int) -> None:
    lanes = paths.lanes(seed)
    got = paths.batch.decode_ms(lanes, *np.array(queries, float).T)
    close(
        got, [paths.plain[i].decode_ms(*q) for i, q in zip(lanes, queries, strict=True)]
    )
    close(
        got,
        [breakdown_decode(paths, i, *q) for i, q in zip(lanes, queries, strict=True)],
    )


@given(queries=steps, seed=seeds)
@DRAWS
def test_mixed_steps_have_one_price(paths: Paths, queries: list, seed: int) -> None:
    lanes = paths.lanes(seed)
    counts = [(c, g, isl, osl, held % isl) for c, g, isl, osl, held in queries]
    got = paths.batch.mixed_ms(lanes, *np.array(counts, float).T)
    close(
        got, [paths.plain[i].mixed_ms(*q) for i, q in zip(lanes, counts, strict=True)]
    )
    close(
        got, [breakdown_mixed(paths, i, *q) for i, q in zip(lanes, counts, strict=True)]
    )


@given(queries=decodes, seed=seeds)
@DRAWS
def test_a_lane_equals_the_layout_alone_bit_for_bit(
    paths: Paths, queries: list, seed: int
) -> None:
    lanes = paths.lanes(seed)
    rows, kv_len = np.array(queries, float).T
    budget, isl = rows * 16, kv_len
    stacked = [
        paths.batch.decode_ms(lanes, rows, kv_len),
        paths.batch.prefill_ms(lanes, 1, rows + kv_len, kv_len),
        paths.batch.mixed_ms(lanes, budget, rows, isl, 512, np.floor(isl / 3)),
    ]
    for lane, single in enumerate(paths.singles):
        of = lanes == lane
        alone = [
            single.decode_ms(0, rows[of], kv_len[of]),
            single.prefill_ms(0, 1, rows[of] + kv_len[of], kv_len[of]),
            single.mixed_ms(
                0, budget[of], rows[of], isl[of], 512, np.floor(isl[of] / 3)
            ),
        ]
        for one, part in zip(alone, stacked, strict=True):
            np.testing.assert_array_equal(one, part[of])


@given(queries=decodes, seed=seeds)
@DRAWS
def test_an_answer_does_not_depend_on_the_company(
    paths: Paths, queries: list, seed: int
) -> None:
    lanes = paths.lanes(seed)
    rows, kv_len = np.array(queries, float).T
    together = paths.batch.decode_ms(lanes, rows, kv_len)
    order = np.random.default_rng(seed).permutation(COUNT)
    again = paths.batch.decode_ms(lanes[order], rows[order], kv_len[order])
    np.testing.assert_array_equal(again, together[order])
    first = paths.batch.decode_ms(lanes[0], rows[0], kv_len[0])
    np.testing.assert_array_equal(first, together[:1])
    crowd = np.resize(order, 1000)
    np.testing.assert_array_equal(
        paths.batch.decode_ms(lanes[crowd], rows[crowd], kv_len[crowd]), together[crowd]
    )


@given(queries=many(whole(1, 300), whole(1, 20_000), whole(0, 3000)), seed=seeds)
@DRAWS
def test_a_whole_decode_is_the_sum_of_its_strides(
    paths: Paths, queries: list, seed: int
) -> None:
    lanes, stride = paths.lanes(seed), 32
    got = paths.batch.decode_sum_ms(lanes, *np.array(queries, float).T, stride=stride)
    wanted = []
    for lane, (requests, isl, osl) in zip(lanes, queries, strict=True):
        total = 0.0
        for i in range(0, osl - 1, stride):
            step = paths.plain[lane].decode_ms(requests, isl + i + 1)
            total += step * min(stride, osl - 1 - i)
        wanted.append(total)
    close(got, wanted)


def breakdown_prefill(paths: Paths, lane: int, b: int, isl: int, held: int) -> float:
    new = isl - held
    query = Query(b * new, b, b, new, held)
    return operations_ms(paths, lane, "context", query)


def breakdown_decode(paths: Paths, lane: int, rows: int, kv_len: int) -> float:
    query = Query(rows, rows, rows, 1, kv_len=kv_len)
    return operations_ms(paths, lane, "generation", query)


def breakdown_mixed(paths: Paths, lane: int, *counts: int) -> float:
    work = planned_work(np, *counts)
    tokens = int(work.tokens)
    query = Query(tokens, 1, 1, tokens, int(work.prefix))
    total = operations_ms(paths, lane, "context", query, apart=False)
    query = Query(1, 1, int(work.batch), int(work.new), int(work.cached))
    total += operations_ms(paths, lane, "context", query, apart=True) / work.passes
    if work.rows > 0:
        query = Query(1, 1, int(work.rows), 1, kv_len=int(work.kv_len))
        total += operations_ms(paths, lane, "generation", query, apart=True)
    return total


def operations_ms(
    paths: Paths, lane: int, phase: str, query: Query, apart: bool | None = None
) -> float:
    entries = getattr(paths.batch.lanes[lane], phase)
    if apart is not None:
        entries = [entry for entry in entries if entry.apart == apart]
    return sum(op.ms for op in price_entries(paths.batch.pricer, entries, query))
