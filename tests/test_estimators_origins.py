"""Every latency says how it was obtained."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aisim_jax import best_available
from aisim_jax import models as m
from aisim_jax.estimators._attention import prepare_attention
from aisim_jax.estimators._token_curves import TokenPricer
from aisim_jax.systems import PerfTables, load_tables


ORIGINS = ("analytic", "measured", "interpolated", "extrapolated")


@pytest.fixture(scope="module")
def pricer() -> TokenPricer:
    return TokenPricer(load_tables("h200_sxm", "sglang"))


def gemm(n: int, k: int, quant: str = "bfloat16") -> m.Gemm:
    return m.Gemm("gemm", 1.0, n, k, quant)


def keys(row: np.ndarray, axis: np.ndarray) -> list[int]:
    return axis[~np.isnan(row)].tolist()


def test_gemms_follow_their_site(pricer: TokenPricer) -> None:
    table = pricer.tables.gemm("bfloat16")
    assert table is not None
    site = int(np.flatnonzero((table.n == 4096) & (table.k == 4096)).item())
    low, *_, high = keys(table.latency_ms[site], table.m)
    known, unknown = gemm(4096, 4096), gemm(5000, 4096)
    assert pricer.origin(known, low) == "measured"
    assert pricer.origin(known, high) == "measured"
    assert pricer.origin(known, high - 1) == "interpolated"
    assert pricer.origin(known, high + 1) == "extrapolated"
    assert pricer.origin(unknown, 128) == "extrapolated"


def test_static_scales_are_never_measured() -> None:
    pricer = TokenPricer(load_tables("h200_sxm", "vllm"))
    assert pricer.origin(gemm(4096, 4096, "fp8"), 128) == "measured"
    assert pricer.origin(gemm(4096, 4096, "fp8_static"), 128) == "interpolated"


def test_experts_count_the_tokens_of_all_attention_ranks(pricer: TokenPricer) -> None:
    shape = (2048, 768, 8, 128, 1, 4)

    def experts(attention_dp: int) -> m.Moe:
        return m.Moe("moe", 1.0, *shape, attention_dp, "bfloat16", "power_law_1.2")

    axis = pricer.expert_axis(experts(1), 1)
    assert axis is not None
    last = int(axis.keys[-1])
    assert pricer.origin(experts(1), last) == "measured"
    assert pricer.origin(experts(1), last - 1) == "interpolated"
    assert pricer.origin(experts(4), last // 4) == "measured"
    assert pricer.origin(experts(4), last // 4 - 1) == "interpolated"
    assert pricer.origin(experts(4), last) == "extrapolated"


def test_collectives_beyond_the_measured_ranks_are_extrapolated(
    pricer: TokenPricer,
) -> None:
    table = pricer.tables.allreduce()
    assert table is not None
    size = keys(table.latency_ms[0], table.size)[5]
    gpus = int(table.gpus[0])
    reduce = m.AllReduce("reduce", 1.0, size, gpus)
    assert pricer.origin(reduce, 1) == "measured"
    assert (
        pricer.origin(m.AllReduce("reduce", 1.0, size - 1, gpus), 1) == "interpolated"
    )
    assert pricer.origin(m.AllReduce("reduce", 1.0, size, 16), 1) == "extrapolated"
    assert pricer.origin(m.AllReduce("reduce", 1.0, size, 1), 1) == "analytic"


def test_batched_matmuls_at_other_head_counts_are_extrapolated(
    pricer: TokenPricer,
) -> None:
    def matmul(heads: int) -> m.MlaBmm:
        return m.MlaBmm("bmm", 1.0, heads, "bfloat16", True)

    table = pricer.tables.bmm("bfloat16", True)
    assert table is not None
    row = int(np.flatnonzero(table.heads == 16).item())
    tokens = keys(table.latency_ms[row], table.tokens)[3]
    assert pricer.origin(matmul(16), tokens) == "measured"
    assert pricer.origin(matmul(12), tokens) == "extrapolated"


def attention(tables: PerfTables, heads: int) -> Any:
    op = m.ContextAttention(
        "attention", 1.0, heads, 8, 128, 0, "bfloat16", "bfloat16", False, True, ()
    )
    return prepare_attention(tables, op)


def test_attention_is_measured_on_its_grid_only(pricer: TokenPricer) -> None:
    table = attention(pricer.tables, 32)
    assert table.context_ms(1, 1024, 0)[1] == "measured"
    assert table.context_ms(1, 1025, 0)[1] == "interpolated"
    assert table.context_ms(3, 1024, 0)[1] == "interpolated"
    assert table.context_ms(1, 1_000_000, 0)[1] == "extrapolated"
    assert table.context_ms(100_000, 1024, 0)[1] == "extrapolated"
    assert attention(pricer.tables, 36).context_ms(1, 1024, 0)[1] == "interpolated"
    assert attention(pricer.tables, 256).context_ms(1, 1024, 0)[1] == "extrapolated"


def test_breakdowns_use_four_words_and_formulas_only_one() -> None:
    config = {
        "model": "deepseek-ai/DeepSeek-V3",
        "system": "h200_sxm",
        "backend": "sglang",
        "worker_type": "aggregated",
        "tp": 8,
        "moe_tp_size": 1,
        "moe_ep_size": 8,
    }
    work = {"num_prefill_requests": 2, "sum_prefill_tokens": 3001}
    measured = best_available(config).estimate_forward_pass_detailed(work)
    seen = {op["origin"] for op in measured["operations"]}
    assert seen <= set(ORIGINS)
    assert seen >= {"analytic", "interpolated"}
    assert measured["data"]["version"] == "0.5.14"
    bound = best_available(config | {"database_mode": "SOL"})
    formulas = bound.estimate_forward_pass_detailed(work)
    assert {op["origin"] for op in formulas["operations"]} == {"analytic"}
