import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import sweep_oracle
from recommend_grids import AGGREGATED, FULL_DUMPS, aggregated_tuples, columns, golden


SWEEPS = (
    "sweep_qwen3_32b_fp8_h200_trtllm",
    "sweep_qwen3_32b_fp8_h200_vllm",
    "sweep_auto_llama31_8b_h100",
    "sweep_qwen3_30b_a3b_h200_sglang",
    "sweep_qwen3_235b_a22b_fp8_h200_trtllm",
    "sweep_mtp_deepseek_r1_h200_trtllm",
    "sweep_llama31_70b_h100_vllm",
    "load_rate20_deepseek_v3_h200_sglang",
)
LARGE_EP = (8, 16, 32, 64)


def sizes(layout):
    return [
        layout.tp,
        layout.pp,
        layout.dp,
        layout.moe_tp,
        layout.moe_ep,
        layout.cp,
    ]


@pytest.mark.parametrize("name", SWEEPS)
def test_layouts_are_enumerated_in_the_recorded_order(name):
    from aisim_jax.recommend import candidate_layouts, default_lists

    figures = golden(name)
    model = figures["inputs"]["model_path"]
    experts = any(part in model for part in ("A3B", "A22B", "DeepSeek"))
    backend = figures["inputs"].get("backend", "trtllm")
    for experiment, space in figures["search_space"].items():
        engine = experiment.split("_")[-1] if backend == "auto" else backend
        agg = space["serving_mode"] == "agg"
        found = []
        for role in ("agg",) if agg else ("prefill", "decode"):
            lists = default_lists(
                engine,
                has_experts=experts,
                role=role,
                large_ep_sizes=LARGE_EP if "DeepSeek" in model else (),
            )
            for field in ("tp", "pp", "dp", "moe_tp", "moe_ep", "cp"):
                assert (
                    list(getattr(lists, field)) == space[f"{role}_{field}_candidates"]
                )
            found += [
                sizes(layout)
                for layout in candidate_layouts(
                    lists,
                    engine,
                    has_experts=experts,
                    total_gpus=space["total_gpus"],
                )
            ]
        assert found == space["parallel_tuples"]


@pytest.mark.parametrize("name", [*AGGREGATED, "grid_agg_xpu"])
def test_axes_and_visits_are_as_recorded(name):
    from aisim_jax.recommend._grids import aggregated_batches, context_budgets
    from aisim_jax.recommend._visiting import (
        aggregated_grid,
        slice_numbers,
        visited_points,
    )

    for figures, _, column in aggregated_tuples(name):
        inputs = figures["inputs"]
        isl, osl = inputs["isl"], inputs["osl"]
        chunked = inputs.get("enable_chunked_prefill", False)
        batches, budgets = aggregated_batches(512), context_budgets(isl, 512, chunked)
        assert list(batches) == figures["batches"]
        assert list(budgets) == figures["ctx_list"]
        grid = aggregated_grid(batches, budgets, isl)
        np.testing.assert_array_equal(grid.batch, column["b"])
        np.testing.assert_array_equal(grid.ctx_tokens, column["ctx"])
        stops = (column["oom"] > 0) | (column["kv_oom"] > 0)
        visited = visited_points(grid, slice_numbers(grid, isl, osl), stops[None])
        np.testing.assert_array_equal(visited[0], column["visited"] > 0)


@pytest.mark.parametrize("name", FULL_DUMPS)
def test_candidate_set_equals_the_full_dump(name):
    from aisim_jax.recommend._grids import tpot_targets
    from aisim_jax.recommend._selection import best_per_target, rounded

    dump = columns(golden(FULL_DUMPS[name])["candidates"][0])
    for figures, entry, column in aggregated_tuples(name):
        good = (column["visited"] > 0) & (column["oom"] == 0) & (column["kv_oom"] == 0)
        kept = best_per_target(
            np.zeros(good.sum(), np.int64),
            rounded(column["seq_s"][good]),
            column["ttft"][good],
            column["tpot"][good],
            tpot_targets(float(figures["inputs"]["ttft"])),
            10,
        )
        ours = set(zip(column["b"][good][kept], column["ctx"][good][kept], strict=True))
        mine = dump["tp"].astype(int) == entry["tuple"][0]
        theirs = zip(
            dump["bs"][mine].astype(float),
            dump["ctx_tokens"][mine].astype(float),
            strict=True,
        )
        assert ours == set(theirs)


@given(
    isl=st.integers(16, 9000),
    osl=st.integers(2, 700),
    chunked=st.booleans(),
    limits=st.lists(st.floats(1e3, 4e6), min_size=1, max_size=3),
)
@settings(max_examples=40, deadline=None)
def test_visits_equal_the_plain_loop(isl, osl, chunked, limits):
    from aisim_jax.recommend._grids import aggregated_batches, context_budgets
    from aisim_jax.recommend._visiting import (
        aggregated_grid,
        slice_numbers,
        visited_points,
    )

    batches, budgets = aggregated_batches(512), context_budgets(isl, 512, chunked)
    grid = aggregated_grid(batches, budgets, isl)
    load = grid.batch * (isl + osl) + grid.ctx_tokens
    stops = load > np.array(limits)[:, None]
    visited = visited_points(grid, slice_numbers(grid, isl, osl), stops)
    for row, limit in zip(visited, limits, strict=True):
        loop = sweep_oracle.visited(
            batches,
            budgets,
            isl,
            osl,
            lambda b, c, limit=limit: b * (isl + osl) + c > limit,
        )
        assert list(zip(grid.batch[row], grid.ctx_tokens[row], strict=True)) == loop


@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 12))
@settings(max_examples=30, deadline=None)
def test_best_rows_equal_the_plain_loop(seed, count):
    from aisim_jax.recommend._grids import Target
    from aisim_jax.recommend._selection import best_per_target

    random = np.random.default_rng(seed)
    group = np.sort(random.integers(0, 4, 80))
    score, ttft, tpot = random.permutation(80) * 1.0, *random.random((2, 80))
    targets = [Target(*pair) for pair in random.random((6, 2))]
    kept = best_per_target(group, score, ttft, tpot, targets, count)
    rows = list(zip(group, score, ttft, tpot, strict=True))
    assert set(kept) == sweep_oracle.best_rows(rows, targets, count)


def test_request_latency_targets_split_the_latency():
    from aisim_jax.recommend._grids import latency_targets

    pairs = latency_targets(500, None, 12000.0)
    assert len(pairs) == 15  # the ladder, 70 % and the default 95 % of 12 s
    assert pairs[-1].ttft_ms == 11400.0
    assert len(latency_targets(500, 2000.0, 12000.0)) == 14
    assert pairs[0] == (300.0, (12000.0 - 300.0) / 499)


def test_context_parallelism_outside_sglang_is_refused():
    from aisim_jax import AisimError
    from aisim_jax.recommend import default_lists
    from aisim_jax.recommend._layouts import override_lists

    lists = default_lists("vllm", has_experts=False)
    with pytest.raises(AisimError, match="not available on vllm"):
        override_lists(lists, {"cp": [1, 2]}, "vllm")
    with pytest.raises(AisimError, match="not a dimension"):
        override_lists(lists, {"width": [1]}, "vllm")
