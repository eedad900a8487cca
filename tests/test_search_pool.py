"""Which shapes a search may try."""

import pytest
from goldens import load_golden


GOLDENS = ("agg_bayes", "agg_random", "domains", "kv_fraction", "min_gpus", "pareto")


def layouts(backend, *, has_experts):
    from aisim_jax.recommend.search._pool import structured_layouts

    return structured_layouts(backend, has_experts=has_experts)


def test_dense_workers_are_tensor_parallel():
    assert [(one.tp, one.gpus) for one in layouts("vllm", has_experts=False)] == [
        (1, 1),
        (2, 2),
        (4, 4),
        (8, 8),
        (16, 16),
    ]


def test_experts_are_spread_or_split_under_either_attention_parallelism():
    found = [one for one in layouts("sglang", has_experts=True) if one.gpus == 4]
    assert {(one.tp, one.dp, one.moe_tp, one.moe_ep) for one in found} == {
        (4, 1, 1, 4),
        (1, 4, 1, 4),
        (4, 1, 4, 1),
        (1, 4, 4, 1),
    }
    alone = [one for one in layouts("sglang", has_experts=True) if one.gpus == 1]
    assert len(alone) == 1


def test_no_engine_gets_what_it_forbids():
    for one in layouts("vllm", has_experts=True):
        assert one.moe_tp == 1 or one.moe_ep == 1
    for one in layouts("trtllm", has_experts=True):
        assert one.tp == 1 or one.dp == 1


def test_replicas_fill_the_budget():
    from aisim_jax.recommend.search._pool import shapes_within

    shapes = shapes_within(layouts("vllm", has_experts=False), 8)
    by_worker = {}
    for shape in shapes:
        by_worker.setdefault(shape.layout.tp, []).append(shape.replicas)
    assert by_worker == {1: [*range(1, 9)], 2: [1, 2, 3, 4], 4: [1, 2], 8: [1]}
    given = shapes_within(layouts("vllm", has_experts=False), 8, (2, 4))
    assert {(s.layout.tp, s.replicas) for s in given} == {
        (1, 2),
        (1, 4),
        (2, 2),
        (2, 4),
        (4, 2),
    }


def test_free_sizes_take_every_consistent_combination():
    from aisim_jax.recommend.search._pool import free_layouts

    found = free_layouts("vllm", {"tp": (2, 3)}, has_experts=True, most_gpus=6)
    assert all(one.tp in (2, 3) and one.pp == 1 for one in found)
    assert all(one.tp * one.dp == one.moe_tp * one.moe_ep for one in found)
    assert {(one.tp, one.dp) for one in found} == {(2, 1), (2, 2)}


@pytest.mark.parametrize("case", GOLDENS)
def test_pool_holds_every_recorded_shape(case):
    from aisim_jax.models import Layout
    from aisim_jax.recommend.search._pool import Shape, shapes_within

    golden = load_golden(f"recommend/replay_{case}.json")
    for row in golden["candidates"]:
        config, total = row["config"], 0
        split = config["deployment_mode"] == "disagg"
        for prefix in ("prefill_", "decode_") if split else ("",):
            sizes = {
                name: config[prefix + key]
                for name, key in (
                    ("tp", "tp"),
                    ("pp", "pp"),
                    ("dp", "attention_dp"),
                    ("moe_tp", "moe_tp"),
                    ("moe_ep", "moe_ep"),
                )
            }
            shape = Shape(config[prefix + "replicas"], Layout(**sizes))
            pool = layouts(config["backend"], has_experts=case == "domains")
            assert shape in shapes_within(pool, 8)
            total += shape.gpus
        assert total == row["used_gpus"]
