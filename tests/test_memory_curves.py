"""Length curves, block counts, prunable shapes and derived fractions are exact."""

from __future__ import annotations

import pytest
from goldens import load_golden
from memory_cases import is_built, topology_layout

from aisim_jax._errors import AisimError, InvalidInputError
from aisim_jax.memory import (
    estimate_num_gpu_blocks,
    kv_curve,
    load_concurrency,
    naive_kv_bytes_per_token,
    scheduler_num_blocks,
    serving_fraction,
    sglang_static_fraction,
    shape_tokens,
    steady_requests,
)
from aisim_jax.models import Layout, load_model


CURVES = load_golden("kv/kv_bytes_curves.json")
SHAPES = load_golden("kv/sweeper_tokens.json")
BLOCKS = load_golden("kv/scheduler_blocks.json")["cases"]


def _built(cases):
    return [case for case in cases if is_built(case["model"])]


def test_request_bytes_and_their_inverse_are_exact():
    cases = _built(CURVES["cases"])
    assert len(cases) >= 100
    for case in cases:
        tp = topology_layout(case["topology"]).tp
        spec = load_model(case["model"])
        curve = kv_curve(spec, case["kv_dtype"], tp, case["backend"])
        found = [curve.sequence_bytes(n) for n in CURVES["lengths"]]
        assert found == case["bytes_per_sequence"], case["model"]
        for budget, *tokens in case["max_tokens"]:
            assert {curve.max_tokens(budget)} == set(tokens)


def test_decode_context_parallelism_shares_tokens():
    spec = load_model("deepseek-ai/DeepSeek-V3")
    whole = kv_curve(spec, "fp8", 8, "vllm")
    shared = kv_curve(spec, "fp8", 8, "vllm", dcp=4)
    assert shared.sequence_bytes(1000) == whole.sequence_bytes(250)
    assert shared.max_tokens(1e9) == whole.max_tokens(4e9)


@pytest.mark.parametrize(
    "case",
    [case for case in BLOCKS if is_built(case["input"]["model_path"])],
    ids=lambda case: f"{case['input']['backend_name']}-{case['input']['block_size']}",
)
def test_scheduler_blocks_are_exact(case):
    arguments = dict(case["input"])
    arguments["backend"] = arguments.pop("backend_name")
    if "error" in case:
        with pytest.raises(AisimError):
            scheduler_num_blocks(**arguments)
    else:
        assert scheduler_num_blocks(**arguments) == case["num_gpu_blocks"]


def test_fixed_block_count_skips_the_estimate():
    model = "meta-llama/Meta-Llama-3.1-8B"
    assert scheduler_num_blocks(model, "vllm", num_gpu_blocks=77) == 77


def test_blocks_count_the_tolerated_pool():
    arguments = {
        "model_path": "meta-llama/Meta-Llama-3.1-8B",
        "system": "h100_sxm",
        "backend": "vllm",
        "scheduler_block_size": 16,
        "max_num_tokens": 8192,
        "max_batch_size": 1,
        "memory_fraction_kind": "of_total",
        "memory_fraction_value": 0.9,
    }
    whole = estimate_num_gpu_blocks(**arguments)
    shrunk = estimate_num_gpu_blocks(**arguments, tolerance_fraction=0.1)
    assert 0.89 * whole < shrunk < 0.91 * whole


def test_prunable_shapes_are_exact():
    cases = _built(SHAPES["cases"])
    assert len(cases) >= 20
    for case in cases:
        question = (case["model"], case["system"], case["backend"])
        layout = Layout(**case["shape"])
        if "error" in case:
            with pytest.raises(InvalidInputError):
                shape_tokens(*question, layout)
        else:
            assert shape_tokens(*question, layout) == case["tokens"], case


def test_expert_width_mismatch_is_an_error_not_a_dropped_shape():
    with pytest.raises(InvalidInputError, match="make both equal"):
        shape_tokens("Qwen/Qwen3-235B-A22B-FP8", "h200_sxm", "vllm", Layout(tp=8))


def test_naive_bytes_per_token_are_exact():
    for case in _built(SHAPES["naive_kv_bytes_per_token"]):
        size = 1 if case["kv_dtype"] == "fp8" else None
        spec = load_model(case["model"])
        assert naive_kv_bytes_per_token(spec, case["tp"], size) == case["bytes"]


def test_every_derived_sglang_fraction_is_exact():
    rows = load_golden("kv/sglang_mem_fraction.json")["rows"]
    assert len(rows) == 192
    for capacity, tp, pp, dp, fraction in rows:
        layout = Layout(tp=tp, pp=pp, dp=dp)
        assert sglang_static_fraction(capacity, layout) == fraction


@pytest.mark.parametrize(
    ("backend", "version", "static", "fraction"),
    [
        ("trtllm", "1.3.0rc20", False, 0.9),
        ("vllm", "0.14.0", False, 0.9),
        ("vllm", "0.19.1", True, 0.9),
        ("vllm", "0.24.0", False, 0.92),
        ("sglang", "0.5.14", False, 0.88),
        ("sglang", "0.5.14", True, 0.907),
    ],
)
def test_serving_fraction_follows_backend_version_and_role(
    backend, version, static, fraction
):
    found = serving_fraction(
        backend, version, capacity_bytes=151397597184, layout=Layout(), static=static
    )
    assert found == fraction


def test_load_ratio_counts_requests_half_way_through_decoding():
    requests = steady_requests(1000, 64, isl=100, osl=51, ranks=2)
    assert requests == (1000 // 64 * 64 * 2) // 125
    assert load_concurrency(0.5, requests) == requests // 2
    assert load_concurrency(0.01, requests) == 1
    with pytest.raises(InvalidInputError, match="less than one request"):
        load_concurrency(0.5, 0)
