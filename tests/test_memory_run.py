"""Footprint and verdict of a run equal the reference, batched or one by one."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from goldens import load_golden
from memory_cases import is_built, lowered, topology_layout

from aisim_jax import precision
from aisim_jax.kernels import RunFootprint, run_footprint, run_kv_budget, run_verdict
from aisim_jax.models import Layout


STATIC = load_golden("kv/static_memory.json")
GRIDS = (
    "grid_agg_trtllm_tight",
    "grid_agg_vllm",
    "grid_agg_sglang_chunked",
    "grid_agg_xpu",
)
FIELDS = {
    "total": "total",
    "weights": "weights",
    "activations": "activations",
    "kvcache": "kv",
    "nccl": "nccl",
    "others": "other",
}


def _decode_requests(batch, context, isl):
    return np.where(batch > 1, batch - -(-context // isl), 0)


def test_static_memory_is_exact_in_every_part():
    cases = [case for case in STATIC["cases"] if is_built(case["model"])]
    assert len(cases) >= 60
    for case in cases:
        layout = topology_layout(case["topology"])
        run = lowered(case["model"], case["system"], case["backend"], "0", [layout])
        fresh = (case["isl"] - case["prefix"]) * case["batch_size"]
        footprint = run.gib(
            0,
            case["batch_size"],
            case["isl"] + case["osl"],
            case["num_tokens"] or fresh,
        )
        for name, field in FIELDS.items():
            assert float(getattr(footprint, field)) == case["memory_gib"][name]


def test_budget_formula():
    for capacity, non_kv, fraction, of_free, reserved, tolerance, expected in STATIC[
        "budget_formula"
    ]:
        found = run_kv_budget(
            capacity,
            non_kv,
            fraction,
            of_free,
            float(reserved),
            float(tolerance),
            xp=np,
        )
        assert float(found) == pytest.approx(expected, rel=1e-12)


def test_out_of_memory_verdicts():
    for case in STATIC["oom_check"]:
        zero = np.float64(0)
        footprint = RunFootprint(
            np.float64(case["total_gib"]),
            zero,
            zero,
            np.float64(case["kvcache_gib"]),
            zero,
            zero,
        )
        verdict = run_verdict(
            footprint,
            float(case["capacity_gib"]),
            float(case["fraction"]),
            case["fraction_of_free"],
            float(case["reserved"]),
            float(case["tolerance"]),
            xp=np,
        )
        assert bool(verdict.model_oom) == case["is_oom"]
        assert bool(verdict.kv_oom) == case["is_kv_cache_oom"]
        failed = case["is_oom"] or case["is_kv_cache_oom"]
        assert (float(verdict.missing) >= 0) if failed else verdict.missing == 0


@pytest.mark.parametrize("name", GRIDS)
def test_aggregated_grid_memory_and_verdicts(name):
    grid = load_golden(f"recommend/{name}.json")
    asked = grid["inputs"]
    isl, osl = asked["isl"], asked["osl"]
    run = lowered(
        asked["model_path"],
        asked["system_name"],
        asked["backend_name"],
        grid["backend_version"],
        [Layout(*entry["tuple"]) for entry in grid["tuples"]],
    )
    lane = np.repeat(
        np.arange(len(grid["tuples"])), [len(t["rows"]) for t in grid["tuples"]]
    )
    rows = [row for entry in grid["tuples"] for row in entry["rows"]]
    table = {
        column: np.array([row[index] for row in rows])
        for index, column in enumerate(grid["columns"])
    }
    batch, context = table["b"], table["ctx"]
    tokens = run.mixed_tokens(context, _decode_requests(batch, context, isl))
    footprint = run.gib(lane, batch, isl + osl, tokens)
    verdict = run.verdict(lane, footprint)
    # The figures carry seven significant digits.
    np.testing.assert_allclose(footprint.total, table["memory_gib"], rtol=1e-6)
    np.testing.assert_array_equal(verdict.model_oom, table["oom"].astype(bool))
    np.testing.assert_array_equal(verdict.kv_oom, table["kv_oom"].astype(bool))
    rejected = np.asarray(verdict.model_oom) | np.asarray(verdict.kv_oom)
    np.testing.assert_array_equal(np.asarray(verdict.missing) > 0, rejected)


@pytest.mark.parametrize("name", ["grid_disagg_sglang", "grid_disagg_trtllm"])
@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_disaggregated_worker_memory(name, role):
    grid = load_golden(f"recommend/{name}.json")
    asked, table = grid["inputs"], grid[f"{role}_rows"]
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
    sizes = ("tp", "pp", "dp", "moe_tp", "moe_ep", "cp")
    layouts = sorted({Layout(*(row[size] for size in sizes)) for row in rows})
    run = lowered(
        asked[f"{role}_model_path"],
        asked[f"{role}_system_name"],
        asked[f"{role}_backend_name"],
        grid["backend_version"],
        layouts,
    )
    lane = [layouts.index(Layout(*(row[size] for size in sizes))) for row in rows]
    batch = [row["bs"] for row in rows]
    if role == "prefill":
        footprint = run.prefill_gib(lane, batch, asked["isl"])
    else:
        footprint = run.decode_gib(lane, batch, asked["isl"], asked["osl"])
    recorded = [row["memory"] for row in rows]
    np.testing.assert_array_equal(np.round(footprint.total, 3), recorded)
    verdict = run.verdict(lane, footprint, static=True)
    assert not np.any(verdict.model_oom) and not np.any(verdict.kv_oom)


def test_single_estimates_in_every_part():
    checked = 0
    for case in load_golden("recommend/estimates.json"):
        asked = case["inputs"]
        if not case.get("memory_gib") or not is_built(asked["model_path"]):
            continue
        layout = Layout(
            tp=asked.get("tp_size", 1),
            dp=asked.get("attention_dp_size", 1),
            moe_tp=asked.get("moe_tp_size", 1),
            moe_ep=asked.get("moe_ep_size", 1),
        )
        run = lowered(
            asked["model_path"],
            asked["system_name"],
            asked["backend_name"],
            case["backend_version"],
            [layout],
            asked.get("nextn", 0),
        )
        batch, isl, osl = asked["batch_size"], asked["isl"], asked["osl"]
        prefix, mode = asked.get("prefix", 0), asked["mode"]
        if mode == "agg":
            context = asked.get("ctx_tokens", isl)
            tokens = run.mixed_tokens(
                context, _decode_requests(np.asarray(batch), context, isl)
            )
            footprint = run.gib(0, batch, isl + osl, tokens)
        elif mode == "static":
            footprint = run.gib(0, batch, isl + osl, (isl - prefix) * batch)
        elif mode == "static_ctx":
            footprint = run.prefill_gib(0, batch, isl, prefix)
        else:
            footprint = run.decode_gib(0, batch, isl, osl)
        for name, field in FIELDS.items():
            found = round(float(getattr(footprint, field)), 4)
            assert found == case["memory_gib"][name], (case["id"], name)
        verdict = run.verdict(
            0,
            footprint,
            fraction=asked.get("free_gpu_memory_fraction"),
            static=mode != "agg",
        )
        assert bool(verdict.model_oom) == case["oom"]
        assert bool(verdict.kv_oom) == case["kv_cache_oom"]
        checked += 1
    assert checked >= 15


def test_drafts_multiply_decode_rows_only():
    layout = Layout(tp=8, moe_ep=8)
    model = "deepseek-ai/DeepSeek-V3"
    vllm = lowered(model, "h200_sxm", "vllm", "0.24.0", [layout], nextn=1)
    assert vllm.mixed_tokens(2000, 15) == 2030
    assert vllm.mixed_tokens(1, 0) == 2
    trtllm = lowered(model, "h200_sxm", "trtllm", "1.3.0rc20", [layout], nextn=1)
    assert trtllm.mixed_tokens(2000, 15) == 16384


LOADS: dict[str, Any] = {
    "weights": 16e9,
    "kv_bytes_per_token": 131072.0,
    "activation_bytes_per_token": 90112.0,
    "workspace_bytes_per_token": 0.0,
    "activation_floor_bytes": 73400320.0,
    "activation_scale": 1.15,
    "nccl": 358612992.0,
    "other": 3758096384.0,
    "unit_bytes": float(2**30),
}


def test_numpy_and_jax_agree_bit_for_bit():
    tokens = np.array([1.0, 4096.0, 65536.0])
    requests = np.array([1.0, 7.0, 300.0])
    scalar = run_footprint(tokens, requests, 5000.0, **LOADS, xp=np)
    with precision():
        batched = jax.vmap(lambda t, r: run_footprint(t, r, 5000.0, **LOADS))
        mapped = jax.jit(batched)(tokens, requests)
        same = [np.asarray(part) for part in mapped]
    for found, part in zip(same, scalar, strict=True):
        np.testing.assert_allclose(found, np.broadcast_to(part, 3), rtol=1e-15)


def test_total_is_differentiable_in_its_loads():
    def total(kv_bytes_per_token):
        loads = LOADS | {"kv_bytes_per_token": kv_bytes_per_token}
        return run_footprint(4096.0, 8.0, 1000.0, **loads).total

    with precision():
        slope = float(jax.grad(total)(131072.0))
    assert slope == pytest.approx(8000 / 2**30, rel=1e-12)
