import os

import numpy as np
import pytest
from recommend_grids import golden


CASES = {case["id"]: case for case in golden("estimates")}
WAITING = {"agg19", "agg20"}  # windowed cache; Intel XPU
ELSEWHERE = {"agg11", "sta06"}  # systems that are not embedded
ANSWERED = [
    name
    for name, case in CASES.items()
    if "result" in case and name not in WAITING | ELSEWHERE
]
FIELDS = {
    "ttft": "ttft_ms",
    "tpot": "tpot_ms",
    "request_latency": "request_latency_ms",
    "seq/s": "requests_per_s",
    "tokens/s": "tokens_per_s",
    "tokens/s/gpu": "tokens_per_s_per_gpu",
    "tokens/s/user": "tokens_per_s_per_user",
    "concurrency": "concurrency",
    "num_total_gpus": "gpus",
}
PARTS = {"kvcache": "kv", "others": "other"}


def layout(inputs, prefix=""):
    from aisim_jax.models import Layout

    names = {"dp": "attention_dp"}
    return Layout(
        **{
            size: inputs.get(f"{prefix}{names.get(size, size)}_size", 1)
            for size in ("tp", "pp", "dp", "moe_tp", "moe_ep", "cp")
        }
    )


def asked(case, systems_paths=()):
    from aisim_jax.recommend import PoolChoice, estimate

    inputs = case["inputs"]
    question = {
        "isl": inputs["isl"],
        "osl": inputs["osl"],
        "prefix": inputs.get("prefix", 0),
        "nextn": inputs.get("nextn", 0),
        "accepted": inputs.get("nextn_accepted", 0.0),
        "memory_fraction": inputs.get("free_gpu_memory_fraction"),
        "systems_paths": systems_paths,
    }
    if inputs["mode"] == "disagg":
        for role in ("prefill", "decode"):
            question[role] = PoolChoice(
                layout(inputs, f"{role}_"),
                inputs[f"{role}_batch_size"],
                inputs[f"{role}_num_workers"],
            )
        question |= {
            "compat": True,
            "decode_system": inputs.get("decode_system_name"),
        }
    else:
        question |= {
            "layout": layout(inputs),
            "batch": inputs["batch_size"],
            "ctx_tokens": inputs.get("ctx_tokens"),
            "stride": inputs.get("stride", 32),
        }
    place = inputs["model_path"], inputs["system_name"], inputs["backend_name"]
    return estimate(*place, inputs["mode"], **question)


def check(case, point):
    for name, field in FIELDS.items():
        expected = case["result"][name]
        assert getattr(point, field) == pytest.approx(expected, rel=1e-9), name
    for name, gib in case.get("memory_gib", {}).items():
        part = point.memory_gib[PARTS.get(name, name)]
        assert part == pytest.approx(gib, abs=5.1e-5), name  # recorded to 4 decimals
    assert point.kv_oom == case.get("kv_cache_oom", False)


@pytest.mark.parametrize("name", ANSWERED)
def test_single_deployments_equal_the_recorded_ones(name):
    check(CASES[name], asked(CASES[name]))


@pytest.mark.needs_systems_tree
@pytest.mark.parametrize("name", sorted(ELSEWHERE))
def test_single_deployments_on_imported_systems(name):
    tree = os.environ["AISIM_SYSTEMS_TREE"]
    check(CASES[name], asked(CASES[name], (tree,)))


def test_a_model_that_does_not_fit_says_how_many_bytes_are_missing():
    from aisim_jax import AisimError

    with pytest.raises(
        AisimError, match=r"does not fit .* bytes\) per GPU are missing"
    ):
        asked(CASES["agg23_oom"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mode": "dynamic"}, "mode 'dynamic'"),
        ({"mode": "disagg"}, "both pools"),
        ({"batch": 0}, "at least one request"),
        ({"osl": 0}, "osl=0"),
    ],
)
def test_bad_points_are_refused_in_one_sentence(changes, message):
    from aisim_jax import AisimError
    from aisim_jax.recommend import estimate

    with pytest.raises(AisimError, match=message):
        estimate("Qwen/Qwen3-32B-FP8", "h200_sxm", "vllm", **changes)


def test_one_output_token_has_no_decode_phase():
    from aisim_jax.recommend import estimate

    point = estimate("Qwen/Qwen3-32B-FP8", "h200_sxm", "vllm", osl=1, batch=8)
    assert point.tpot_ms == point.tokens_per_s_per_user == 0.0
    assert point.request_latency_ms == point.ttft_ms > 0
    assert point.tokens_per_s == point.requests_per_s > 0


def test_d5_two_context_parallel_prefill_workers_and_one_decode_worker_are_24_gpus():
    from aisim_jax.models import Layout
    from aisim_jax.recommend import PoolChoice, estimate
    from aisim_jax.recommend._picking import cluster_rate_per_gpu

    found = estimate(
        "Qwen/Qwen3-30B-A3B",
        "h200_sxm",
        "sglang",
        "disagg",
        isl=4000,
        osl=500,
        prefill=PoolChoice(Layout(cp=8, moe_ep=8), batch=1, workers=2),
        decode=PoolChoice(Layout(tp=8, moe_ep=8), batch=64, workers=1),
    )
    assert found.gpus == 24
    assert 32 // found.gpus == 1
    rate = found.tokens_per_s_per_gpu
    assert rate == pytest.approx(found.tokens_per_s / 24, rel=1e-12)
    cluster = cluster_rate_per_gpu(np.array([rate]), np.array([found.gpus]), 32)
    np.testing.assert_allclose(cluster, found.tokens_per_s / 32, rtol=1e-12)
