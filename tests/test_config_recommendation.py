"""recommendation.yaml: schema, domains, presets, rules, candidates."""

import pytest
import yaml
from config_files import RECOMMENDATION, at, changed, example_files
from config_schema import field_mismatches
from goldens import load_golden

from aisim_jax.config import (
    ConfigError,
    IntegerRange,
    NumericRange,
    RecommendationConfig,
    dump_prediction,
    expand,
    load_prediction,
    load_recommendation,
    materialize,
    parallel_space,
    recommendation_notes,
    search_domains,
    unsupported_features,
)


AGGREGATED = "engine.workers.aggregated"
SHAPE = {
    "replicas": 1,
    "tensor": 2,
    "pipeline": 1,
    "attention_data": 1,
    "moe_tensor": 1,
    "moe_expert": 2,
}
SLA = {"evaluation.sla": {"ttft_ms": 100}}
MIN_GPUS = {**SLA, "optimization.target": "min_gpus"}


def load(changes, overrides=()):
    return load_recommendation(changed(RECOMMENDATION, changes), overrides)


def refusal(changes):
    with pytest.raises(ConfigError) as caught:
        load(changes)
    return caught.value


def integers(**bounds):
    return expand(IntegerRange.model_validate({"range": bounds}))


def numbers(**bounds):
    return expand(NumericRange.model_validate({"range": bounds}))


def test_every_field_of_the_schema_has_its_type_bounds_and_default():
    schema = load_golden("recommend/schema_recommendation.json")
    assert list(field_mismatches(schema, RecommendationConfig)) == [
        # Here every candidate is evaluated unless a sampling algorithm is asked for.
        "OptimizerConfig.algorithm: default 'exhaustive', not 'bayesian'",
        "OptimizerConfig.max_trials: default 'auto', not 320",
    ]


@pytest.mark.parametrize(
    "path",
    [path for path in example_files() if path.name.startswith("recommend_")],
    ids=lambda path: path.stem,
)
def test_an_example_reloads_equal_and_byte_stable(path):
    config = load_recommendation(path)
    text = dump_prediction(config)
    again = load_recommendation(yaml.safe_load(text))
    assert again == config
    assert dump_prediction(again) == text
    assert unsupported_features(config) == []


def test_an_integer_range_is_a_list_of_integers():
    assert integers(min=4, max=11, step=3) == (4, 7, 10)
    assert integers(min=8, max=64, scale="log") == (8, 16, 32, 64)
    assert integers(min=6, max=40, scale="log") == (6, 8, 16, 32, 40)
    assert integers(min=5, max=5, scale="log") == (5,)


def test_a_range_of_numbers_is_a_grid_with_both_ends():
    assert numbers(min=0.5, max=0.8, step=0.1) == pytest.approx([0.5, 0.6, 0.7, 0.8])
    grid = numbers(min=1.0, max=256.0, scale="log")
    assert grid == pytest.approx([2.0**k for k in range(9)])
    assert (grid[0], grid[-1]) == (1.0, 256.0)
    assert numbers(min=0.0, max=8.0) == pytest.approx(range(9))
    assert numbers(min=3.0, max=3.0) == (3.0,)


def test_defaults_search_both_modes_and_two_backends():
    config = load(
        {
            "engine": {
                "model": "m",
                "hardware": "h",
                "workers": {"aggregated": {}, "prefill": {}, "decode": {}},
            }
        }
    )
    assert expand(config.engine.mode) == ("aggregated", "disaggregated")
    assert expand(config.engine.backend) == ("vllm", "sglang")
    domains = search_domains(config, "disaggregated", "sglang")
    place = "engine.workers"
    assert domains[f"{place}.prefill.scheduler.max_sequences"][-1] == 256
    assert domains[f"{place}.decode.scheduler.max_batched_tokens"] == (8192,)
    assert domains[f"{place}.decode.scheduler.max_sequences"] == (256, 512, 1024)
    assert domains[f"{place}.decode.kv_cache.block_size"] == (1,)
    assert domains[f"{place}.decode.kv_cache.capacity.memory_fraction"] == (0.88,)


def test_a_budget_limits_only_where_it_is_given_or_candidates_are_sampled():
    assert load({}).optimizer.budget is None
    assert load({"optimizer.max_trials": 9}).optimizer.budget == 9
    assert load({"optimizer.algorithm": "random"}).optimizer.budget == 320


@pytest.mark.parametrize("preset", [False, {}])
def test_without_a_preset_sizes_are_domains(preset):
    block = {"preset": preset, "tensor": {"choices": [1, 2]}, "replicas": 3}
    space = parallel_space(load({f"{AGGREGATED}.parallelism": block}), "aggregated")
    assert space.sizes["tensor"] == (1, 2)
    assert space.sizes["replicas"] == (3,)
    assert space.sizes["moe_expert"] is None
    assert not space.legal_pool and space.shapes is None


def test_a_preset_is_the_legal_pool_or_a_list_of_shapes():
    assert parallel_space(load({}), "aggregated").legal_pool
    config = load({f"{AGGREGATED}.parallelism.preset": [SHAPE]})
    shapes = parallel_space(config, "aggregated").shapes or ()
    assert [shape.moe_expert for shape in shapes] == [2]


RULES = [
    ({"traffic.load.concurrency": {"choices": []}}, "traffic.load.concurrency.choices"),
    (
        {"traffic.load.concurrency": {"choices": [4, 4]}},
        "traffic.load.concurrency.choices",
    ),
    (
        {"traffic.load.concurrency": {"choices": [4, 0]}},
        "traffic.load.concurrency.choices[1]",
    ),
    (
        {"traffic.load.concurrency": {"range": {"min": 1, "max": 4}}},
        "traffic.load.concurrency.range.step",
    ),
    (
        {"traffic.load.concurrency": {"range": {"min": 4, "max": 1, "step": 1}}},
        "traffic.load.concurrency.range.max",
    ),
    (
        {"traffic.load.concurrency": {"range": {"min": 0, "max": 4, "step": 1}}},
        "traffic.load.concurrency.range.min",
    ),
    (
        {
            "traffic.load.concurrency": {
                "range": {"min": 1, "max": 4, "step": 1, "scale": "log"}
            }
        },
        "traffic.load.concurrency.range.step",
    ),
    ({"traffic.load.concurrency": {"from": 3}}, "traffic.load.concurrency"),
    (
        {
            f"{AGGREGATED}.kv_cache.capacity.memory_fraction": {
                "range": {"min": 0.5, "max": 1.5}
            }
        },
        f"{AGGREGATED}.kv_cache.capacity.memory_fraction.range.max",
    ),
    ({"traffic.load": {"type": "kv_capacity_fraction"}}, "traffic.load.fraction"),
    ({"engine.mode": {"range": {"min": 1, "max": 2}}}, "engine.mode"),
    ({"engine.mode": {"choices": ["agg"]}}, "engine.mode.choices[0]"),
    ({"engine.backend_version": {"sglang": "1"}}, "engine.backend_version.sglang"),
    ({"engine.hardware": "auto"}, "optimization.hardware"),
    ({"engine.tokenization": {}}, "engine.tokenization"),
    (
        {f"{AGGREGATED}.parallelism": {"preset": "default", "tensor": 2}},
        f"{AGGREGATED}.parallelism.tensor",
    ),
    (
        {f"{AGGREGATED}.parallelism": {"preset": [{"tensor": 2}]}},
        f"{AGGREGATED}.parallelism.preset[0].replicas",
    ),
    ({f"{AGGREGATED}.parallelism.preset": []}, f"{AGGREGATED}.parallelism.preset"),
    (
        {f"{AGGREGATED}.parallelism.preset": {"a": 1}},
        f"{AGGREGATED}.parallelism.preset.a",
    ),
    (
        {f"{AGGREGATED}.kv_cache.capacity": {"type": "fixed", "bytes": 4}},
        f"{AGGREGATED}.kv_cache.capacity.blocks",
    ),
    ({"engine.workers": {}}, "engine.workers.aggregated"),
    ({"optimization.strict_sla": True}, "evaluation.sla"),
    ({"optimization.target": "goodput"}, "evaluation.sla"),
    ({"optimization.target": "min_gpus"}, "evaluation.sla"),
    (
        {"optimization.constraints.min_goodput_rps": 1.0},
        "optimization.constraints.min_goodput_rps",
    ),
    (
        {"optimization.constraints.min_candidate_gpus": 33},
        "optimization.constraints.min_candidate_gpus",
    ),
    ({**MIN_GPUS, "traffic.load.concurrency": {"choices": [1, 2]}}, "traffic.load"),
    (
        {
            **MIN_GPUS,
            "traffic.load": {"type": "constant_rate", "requests_per_second": 4},
            "optimization.constraints.min_goodput_rps": 5.0,
        },
        "optimization.constraints.min_goodput_rps",
    ),
    ({"evaluation.seeds": 2}, "evaluation.seeds"),
    ({"router": {}}, "router"),
]


@pytest.mark.parametrize(("changes", "path"), RULES)
def test_a_mistake_is_one_sentence_at_its_path(changes, path):
    error = refusal(changes)
    assert error.path == path
    assert str(error).startswith(f"{path}: ")
    assert str(error).endswith(".") and "\n" not in str(error)


CHANGES = {
    "missing_worker": {"engine.workers": {}},
    "sla_needed": {"optimization.target": "min_gpus"},
    "preset_and_knobs": {
        f"{AGGREGATED}.parallelism": {"preset": "default", "tensor": 2}
    },
    "log_range_with_step": {
        "traffic.load.concurrency": {
            "range": {"min": 1, "max": 4, "step": 1, "scale": "log"}
        }
    },
    "dup_choices": {"traffic.load.concurrency": {"choices": [4, 4]}},
}


@pytest.mark.parametrize("name", CHANGES)
def test_recorded_mistakes_are_bad_input_at_the_recorded_path(name):
    cases = load_golden("recommend/cli_errors.json")["cases"]
    case = next(case for case in cases if case["case"] == name)
    assert case["exit_code"] == 2
    assert refusal(CHANGES[name]).path.startswith(case["error_path"] or "")


def test_a_prediction_is_told_from_a_recommendation():
    document = {key: RECOMMENDATION[key] for key in ("traffic", "engine")}
    with pytest.raises(ConfigError, match="aisim predict") as caught:
        load_recommendation(document)
    assert caught.value.path == "optimization"


def test_what_is_left_out_is_noted():
    document = {key: RECOMMENDATION[key] for key in ("engine", "optimization")}
    notes = recommendation_notes(load_recommendation(document))
    assert [note.split()[0] for note in notes] == ["traffic", "engine.context_length"]
    assert recommendation_notes(load({"engine.context_length": 4096})) == []


def test_a_choice_of_every_value_is_a_concrete_prediction():
    config = load(
        {
            "engine.mode": {"choices": ["aggregated", "disaggregated"]},
            "engine.backend": {"choices": ["vllm", "sglang"]},
            "engine.backend_version": {"sglang": "0.5.14"},
            "engine.hardware": "auto",
            "engine.kv_transfer": {"bandwidth_gb_per_second": 5},
            "engine.workers": {"aggregated": {}, "prefill": {}, "decode": {}},
            "optimization.hardware": "h200_sxm",
            "traffic.load.concurrency": {"choices": [4, 8]},
            "traffic.stop": {"requests_per_load_unit": 2.5},
        }
    )
    chosen = materialize(
        config,
        {
            "engine.mode": "aggregated",
            "engine.backend": "sglang",
            "traffic.load.concurrency": 8,
            f"{AGGREGATED}.parallelism": SHAPE,
            f"{AGGREGATED}.scheduler.max_batched_tokens": 16384,
            f"{AGGREGATED}.scheduler.max_sequences": 512,
        },
    )
    engine = chosen.engine
    assert (engine.mode, engine.backend_version) == ("aggregated", "0.5.14")
    assert (engine.hardware, engine.kv_transfer) == ("h200_sxm", None)
    assert (engine.workers.prefill, engine.workers.decode) == (None, None)
    assert at(chosen, f"{AGGREGATED}.parallelism.moe_expert") == 2
    assert at(chosen, f"{AGGREGATED}.scheduler.max_sequences") == 512
    assert at(chosen, f"{AGGREGATED}.kv_cache.block_size") == 1
    assert at(chosen, "traffic.stop.requests") == 20
    assert load_prediction(yaml.safe_load(dump_prediction(chosen))) == chosen


def test_a_candidate_without_a_value_is_refused_by_path():
    with pytest.raises(ConfigError, match="choose among") as caught:
        materialize(load({}), {f"{AGGREGATED}.parallelism": SHAPE})
    assert caught.value.path == f"{AGGREGATED}.scheduler.max_batched_tokens"


def test_a_share_of_the_kv_capacity_becomes_a_concurrency():
    config = load(
        {
            "traffic.load": {
                "type": "kv_capacity_fraction",
                "fraction": {"choices": [0.05, 0.1]},
            },
            "traffic.stop": {"requests_per_load_unit": 1},
            f"{AGGREGATED}.scheduler": {
                "max_batched_tokens": 8192,
                "max_sequences": 256,
            },
        }
    )
    assert search_domains(config, "aggregated", "vllm")["traffic.load.fraction"] == (
        0.05,
        0.1,
    )
    chosen = materialize(
        config,
        {
            f"{AGGREGATED}.parallelism": SHAPE,
            "traffic.load.fraction": 0.1,
            "traffic.load.concurrency": 17,
        },
    )
    assert at(chosen, "traffic.load.concurrency") == 17
    assert at(chosen, "traffic.stop.requests") == 17
