"""The batched estimator agrees with a plain re-statement of the model everywhere.

Queries are drawn over the whole domain: inside the measured grids, in their ragged
corners and far beyond them, between measured head counts, at unmeasured matrix shapes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from op_level_cases import MOST_CONTEXT, PlainPath, compiled, differences
from oracle.interpolation import Miss
from oracle.op_level import Oracle

from aisim_jax import models as m
from aisim_jax.estimators import OpLevelBatch
from aisim_jax.estimators._breakdown import Query, price_entries
from aisim_jax.systems import load_tables


RTOL = 1e-9
Draw = Callable[..., int]


class Scenario(NamedTuple):
    """Layouts of one model on one system and engine; `changes` to its geometry."""

    model: str
    system: str
    backend: m.Backend
    layouts: tuple[dict[str, int], ...]
    changes: tuple[tuple[str, int], ...] = ()
    nextn: int = 0
    analytic: bool = False


TENSOR = tuple({"tp": tp} for tp in (1, 2, 4, 8))
EXPERTS = (
    {"tp": 1},
    {"tp": 4, "moe_tp": 4},
    {"tp": 4, "moe_ep": 4},
    {"tp": 2, "dp": 2, "moe_ep": 4},
    {"dp": 4, "moe_ep": 4},
    {"dp": 16, "moe_ep": 16},
)
LATENT = (
    {"tp": 8, "moe_ep": 8},
    {"tp": 8, "moe_tp": 8},
    {"tp": 4, "dp": 2, "moe_ep": 8},
    {"dp": 8, "moe_ep": 8},
    {"tp": 16, "pp": 2, "moe_ep": 16},
)
SPLIT = ({"cp": 4, "moe_ep": 4}, {"cp": 8, "moe_ep": 8}, {"tp": 4, "moe_ep": 4})
SCENARIOS = {
    "static fp8": Scenario(
        "nvidia/Llama-3.1-70B-Instruct-FP8", "h100_sxm", "vllm", TENSOR
    ),
    "pipeline and norms": Scenario(
        "Qwen/Qwen3-32B-FP8", "h200_sxm", "trtllm", (*TENSOR, {"tp": 2, "pp": 3})
    ),
    "heads between keys": Scenario(
        "meta-llama/Meta-Llama-3.1-8B",
        "h200_sxm",
        "vllm",
        TENSOR,
        (("heads", 56), ("hidden", 7000), ("intermediate", 70_000)),
    ),
    "heads beyond keys": Scenario(
        "meta-llama/Meta-Llama-3.1-8B",
        "b200_sxm",
        "sglang",
        TENSOR,
        (("heads", 168), ("hidden", 1000), ("intermediate", 300_000)),
    ),
    "experts sglang": Scenario("Qwen/Qwen3-30B-A3B", "b200_sxm", "sglang", EXPERTS),
    "experts vllm": Scenario(
        "mistralai/Mixtral-8x7B-v0.1", "h100_sxm", "vllm", EXPERTS[:5]
    ),
    "experts trtllm": Scenario(
        "Qwen/Qwen3-235B-A22B-FP8", "b200_sxm", "trtllm", EXPERTS
    ),
    "context parallel": Scenario("Qwen/Qwen3-30B-A3B", "h200_sxm", "sglang", SPLIT),
    "four-bit experts": Scenario(
        "nvidia/DeepSeek-V3.1-NVFP4", "b200_sxm", "trtllm", LATENT
    ),
    "latent block": Scenario("deepseek-ai/DeepSeek-V3", "h200_sxm", "vllm", LATENT),
    "latent kernels": Scenario(
        "deepseek-ai/DeepSeek-V3", "h100_sxm", "sglang", (*LATENT, *SPLIT[:2]), nextn=2
    ),
    "speed of light": Scenario(
        "deepseek-ai/DeepSeek-V3",
        "h200_sxm",
        "sglang",
        (*LATENT, *SPLIT[:2]),
        analytic=True,
    ),
    "dense speed of light": Scenario(
        "Qwen/Qwen3-32B", "b200_sxm", "vllm", TENSOR, analytic=True
    ),
}


# Every scenario checks the scalar path, these the batched one too (new shapes compile).
BATCHED = (
    "experts sglang",
    "heads between keys",
    "latent kernels",
    "speed of light",
)


class Pair(NamedTuple):
    """The package's stack, the oracle, and the operation lists of every lane."""

    batch: OpLevelBatch
    oracle: Oracle
    lists: list[m.OperationLists]
    random: np.random.Generator
    batched: bool

    def each_lane(self, count: int) -> np.ndarray:
        return np.repeat(np.arange(len(self.lists)), count)

    def draw(self, low: int, high: int) -> int:
        """A whole number, evenly spread over its logarithm; often a power of two."""
        value = math.exp(self.random.uniform(math.log(low), math.log(high + 0.99)))
        if self.random.uniform() < 0.3:
            value = 2 ** round(math.log2(value))
        return min(max(int(value), low), high)

    def check(
        self, kind: str, queries: list[tuple[int, ...]], oracle: Callable[..., Any]
    ) -> None:
        """`oracle(lists, *counts)` gives the total of a query or raises Miss."""
        wanted = []
        for lane, *counts in queries:
            try:
                wanted.append(oracle(self.lists[lane], *counts))
            except Miss:
                wanted.append(None)
        plain = [PlainPath(self.batch, lane) for lane in range(len(self.lists))]
        got = [getattr(plain[lane], kind)(*counts) for lane, *counts in queries]
        wrong = differences(got, wanted, lambda i: queries[i], RTOL)
        if self.batched:
            got = getattr(self.batch, kind)(*np.array(queries, float).T)
            wrong += differences(got, wanted, lambda i: ("batched", queries[i]), RTOL)
        assert not wrong, wrong[:5]
        assert any(value is not None for value in wanted)


@pytest.fixture(scope="module", params=SCENARIOS, ids=lambda name: name)
def pair(request: pytest.FixtureRequest) -> Pair:
    case = SCENARIOS[request.param]
    tables = load_tables(case.system, case.backend)
    spec = replace(m.load_model(case.model), **dict(case.changes))
    precision = m.resolve_precision(
        spec, case.backend, tables.version, tables.spec.sm_version
    )
    layouts = [m.Layout(**sizes) for sizes in case.layouts]
    batch = compiled(tables, spec, layouts, nextn=case.nextn, analytic=case.analytic)
    lists = [
        m.build_operations(
            spec,
            precision,
            layout,
            case.backend,
            nextn=case.nextn,
            context_lanes=tables.lane_order("context", None, spec.architecture),
            generation_lanes=tables.lane_order("generation", None, spec.architecture),
        )
        for layout in layouts
    ]
    oracle = Oracle(tables, analytic=case.analytic)
    random = np.random.default_rng(len(request.param))
    return Pair(batch, oracle, lists, random, request.param in BATCHED)


def prefill_query(pair: Pair, lane: int) -> tuple[int, int, int, int]:
    batch = pair.draw(1, 1000)
    new = pair.draw(1, MOST_CONTEXT // batch)
    prefix = pair.draw(1, 200_000) if pair.random.uniform() < 0.5 else 0
    return lane, batch, new + prefix, prefix


def decode_query(pair: Pair, lane: int) -> tuple[int, int, int]:
    return lane, pair.draw(1, 3000), pair.draw(1, 200_000)


def mixed_query(pair: Pair, lane: int) -> tuple[int, int, int, int, int, int]:
    isl = pair.draw(2, 50_000)
    prefix = pair.draw(1, isl - 1) if pair.random.uniform() < 0.5 else 0
    requests = pair.draw(1, 1000) - 1
    return lane, pair.draw(1, 50_000), requests, isl, pair.draw(1, 4000), prefix


def scheduled_query(pair: Pair, lane: int) -> tuple[int, ...]:
    has_prefill, has_decode = pair.random.uniform(size=2) < 0.7
    requests, new, cached = pair.draw(1, 64) - 1, pair.draw(1, 20_000), 0
    if pair.random.uniform() < 0.5:
        cached = pair.draw(1, 100_000)
    rows = pair.draw(1, 500)
    kv = pair.draw(1, 10_000) * rows + int(pair.random.integers(rows))
    prefill = (requests, max(new, requests), cached) if has_prefill else (0, 0, 0)
    return (lane, *prefill, *((rows, kv) if has_decode else (0, 0)))


def test_prefills_agree(pair: Pair) -> None:
    def total(ops: m.OperationLists, *counts: int) -> float:
        return sum(pair.oracle.prefill(ops.context, *counts))

    queries = [prefill_query(pair, lane) for lane in pair.each_lane(10)]
    pair.check("prefill_ms", queries, total)


def test_decode_steps_agree(pair: Pair) -> None:
    rows = pair.batch.nextn + 1

    def total(ops: m.OperationLists, requests: int, kv_len: int) -> float:
        return sum(pair.oracle.decode(ops.generation, requests * rows, kv_len))

    queries = [decode_query(pair, lane) for lane in pair.each_lane(12)]
    pair.check("decode_ms", queries, total)


def test_mixed_steps_agree(pair: Pair) -> None:
    rows = pair.batch.nextn + 1

    def total(ops: m.OperationLists, c: int, g: int, *lengths: int) -> float:
        return sum(pair.oracle.mixed(ops, c, g * rows, *lengths))

    queries = [mixed_query(pair, lane) for lane in pair.each_lane(8)]
    pair.check("mixed_ms", queries, total)


@pytest.mark.parametrize("pair", BATCHED, indirect=True)
def test_scheduled_iterations_agree(pair: Pair) -> None:
    queries = [scheduled_query(pair, lane) for lane in pair.each_lane(8)]
    got = pair.batch.scheduled_ms(*np.array(queries, float).T)
    wanted = [pair.oracle.scheduled(pair.lists[q[0]], *q[1:]) for q in queries]
    wrong = differences(got, wanted, lambda i: queries[i], RTOL)
    assert not wrong, wrong[:5]


def test_operations_agree_one_by_one(pair: Pair) -> None:
    for lane in pair.each_lane(2):
        _, b, isl, prefix = prefill_query(pair, lane)
        new = isl - prefix
        ops, compiled = pair.lists[lane], pair.batch.lanes[lane]
        query = Query(b * new, b, b, new, prefix)
        check_operations(
            pair,
            compiled.context,
            query,
            pair.oracle.prefill,
            ops.context,
            b,
            isl,
            prefix,
        )
        _, rows, kv_len = decode_query(pair, lane)
        query = Query(rows, rows, rows, 1, kv_len=kv_len)
        check_operations(
            pair,
            compiled.generation,
            query,
            pair.oracle.decode,
            ops.generation,
            rows,
            kv_len,
        )


def check_operations(
    pair: Pair,
    entries: Any,
    query: Query,
    oracle: Callable[..., list[float]],
    ops: Any,
    *counts: int,
) -> None:
    try:
        wanted = oracle(ops, *counts)
    except Miss:
        return
    got = price_entries(pair.batch.pricer, entries, query)
    wrong = differences(
        [op.ms for op in got], wanted, lambda i: (got[i].name, query), RTOL
    )
    assert not wrong, wrong
