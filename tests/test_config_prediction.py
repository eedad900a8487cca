"""prediction.yaml: schema, defaults, rules, errors, overrides, saved form."""

import subprocess
import sys

import pytest
import yaml
from config_files import PREDICTION, at, changed, example_files
from config_schema import field_mismatches
from goldens import load_golden

from aisim_jax.config import (
    ConfigError,
    PredictionConfig,
    dump_prediction,
    forward_pass_config,
    load_prediction,
    locate_traces,
    pin,
    resolve_prediction,
    save_prediction,
    unsupported_features,
)


AGGREGATED = "engine.workers.aggregated"
SPLIT = {
    "engine.mode": "disaggregated",
    "engine.workers": {"prefill": {}, "decode": {}},
}
TRACE = {
    "traffic.source": {"type": "trace", "paths": ["t.jsonl"]},
    "traffic.load": {"type": "trace_timestamps"},
    "traffic.stop": None,
}


def load(changes, overrides=()):
    return load_prediction(changed(PREDICTION, changes), overrides)


def refusal(changes, overrides=()):
    with pytest.raises(ConfigError) as caught:
        load(changes, overrides)
    return caught.value


def test_every_field_of_the_schema_has_its_type_bounds_and_default():
    schema = load_golden("recommend/schema_prediction.json")
    assert list(field_mismatches(schema, PredictionConfig)) == []


def test_reading_a_file_imports_no_jax():
    program = (
        "import sys, aisim_jax.config as c; c.PredictionConfig; c.RecommendationConfig; "
        "assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    "path",
    [path for path in example_files() if path.name.startswith("predict_")],
    ids=lambda path: path.stem,
)
def test_an_example_reloads_equal_and_byte_stable(path, tmp_path):
    config = load_prediction(path)
    saved = tmp_path / "a.yaml"
    save_prediction(config, saved)
    again = load_prediction(saved)
    assert again == config
    assert dump_prediction(again) == saved.read_text()
    assert unsupported_features(config) == []


def test_absent_traffic_is_a_hundred_short_requests_ten_at_a_time():
    document = {"engine": PREDICTION["engine"]}
    traffic = load_prediction(document).traffic
    assert at(traffic, "source.input_tokens") == 1024
    assert at(traffic, "source.output_tokens") == 128
    assert at(traffic, "load.concurrency") == 10
    assert at(traffic, "stop.requests") == 100


@pytest.mark.parametrize(
    ("backend", "block_size", "fraction"),
    [("vllm", 64, 0.9), ("sglang", 1, 0.88), ("trtllm", 32, 0.9)],
)
def test_cache_defaults_follow_the_backend(backend, block_size, fraction):
    cache = at(load({"engine.backend": backend}), f"{AGGREGATED}.kv_cache")
    assert cache.block_size == block_size
    assert cache.capacity.memory_fraction == fraction


def test_a_prefill_role_runs_one_sequence_unless_it_says_otherwise():
    own = "engine.workers.prefill.scheduler.max_sequences"
    assert at(load(SPLIT), own) == 1
    assert at(load(SPLIT), own.replace("prefill", "decode")) == 256
    assert at(load({**SPLIT, own: 4}), own) == 4


def test_gpus_of_a_role_are_replicas_times_the_ranks_that_own_one():
    sizes = {"replicas": 2, "tensor": 2, "pipeline": 3, "moe_expert": 2}
    config = load({f"{AGGREGATED}.parallelism": sizes})
    assert at(config, f"{AGGREGATED}.parallelism.gpus") == 12


@pytest.mark.parametrize(
    ("load_block", "ratio", "count"),
    [
        ({"concurrency": 16}, 3, 48),
        ({"type": "constant_rate", "requests_per_second": 2.5}, 1.3, 3),
        ({"type": "poisson", "requests_per_second": 0.1}, 1, 1),
    ],
)
def test_a_relative_stop_becomes_a_count(load_block, ratio, count):
    config = load(
        {
            "traffic.load": load_block,
            "traffic.stop": {"requests_per_load_unit": ratio},
        }
    )
    assert at(config, "traffic.stop.requests") == count


def test_resolving_twice_changes_nothing():
    config = load({**TRACE, "engine.systems_path": "roots"})
    assert resolve_prediction(config) == config
    assert at(config, "traffic.source.block_size") == 512
    assert config.engine.systems_paths == ("roots",)


def test_pinned_words_are_written_as_values():
    text = dump_prediction(pin(load({}), "0.24.0", 8192))
    assert "backend_version: 0.24.0" in text and "context_length: 8192" in text


def test_a_file_that_the_reference_wrote_is_read():
    emitted = changed(
        PREDICTION,
        {
            "traffic.load.agentic_warmup": False,
            "engine.decoder_replay": False,
            "engine.estimator_config": {},
            f"{AGGREGATED}.timing": {"type": "default", "estimator_config": {}},
            f"{AGGREGATED}.kv_cache.capacity": {
                "type": "default",
                "memory_fraction": 0.9,
                "cuda_graph_reserved_bytes": 0,
            },
            "evaluation": {},
        },
    )
    assert at(load_prediction(emitted), "traffic.load.concurrency") == 2


RULES = [
    ({"engine.mode": "agregated"}, "engine.mode", "unknown_enum_value"),
    ({"engine.bakend": 1}, "engine.bakend", "unknown_field"),
    ({"engin": {}}, "engin", "unknown_section"),
    ({"router": {}}, "router", "other_stack"),
    ({"planner": {}}, "planner", "other_stack"),
    ({"optimization": {}}, "optimization", "foreign_section"),
    ({"traffic": None}, "traffic", "wrong_type"),
    (
        {"traffic.load.concurrency": {"choices": [4, 8]}},
        "traffic.load.concurrency",
        "wrong_type",
    ),
    ({"traffic.load.concurrency": "8"}, "traffic.load.concurrency", "wrong_type"),
    ({"traffic.load.concurrency": True}, "traffic.load.concurrency", "wrong_type"),
    ({"traffic.load.concurrency": 2.0}, "traffic.load.concurrency", "wrong_type"),
    ({"traffic.source.input_tokens": 0}, "traffic.source.input_tokens", "wrong_type"),
    (
        {"traffic.source.cached_prefix_tokens": 65},
        "traffic.source.cached_prefix_tokens",
        "prefix_above_prompt",
    ),
    ({"traffic.source.type": "file"}, "traffic.source.type", "unknown_enum_value"),
    ({"traffic.load.seed": 1}, "traffic.load.seed", "foreign_field"),
    (
        {"traffic.load.requests_per_second": 2},
        "traffic.load.requests_per_second",
        "foreign_field",
    ),
    ({"traffic.load": {"type": "poisson"}}, "traffic.load", "one_rate"),
    (
        {"traffic.load": {"type": "poisson", "sessions_per_second": 2}},
        "traffic.load.sessions_per_second",
        "rate_unit",
    ),
    ({"traffic.load": {"type": "trace_timestamps"}}, "traffic.load.type", None),
    ({"traffic.stop": None}, "traffic.stop", "missing_field"),
    ({"traffic.stop": {"sessions": 2}}, "traffic.stop.sessions", "stop_unit"),
    ({"traffic.stop.requests_per_load_unit": 2}, "traffic.stop", "one_stop"),
    (
        {"traffic.stop": {"max_virtual_time_seconds": 1}},
        "traffic.stop.max_virtual_time_seconds",
        "stop_unit",
    ),
    (
        {**TRACE, "traffic.stop": {"requests": 1}},
        "traffic.stop.requests",
        "trace_stop",
    ),
    (
        {**TRACE, "traffic.load": {"type": "poisson", "requests_per_second": 1}},
        "traffic.load.type",
        "trace_load",
    ),
    ({**TRACE, "traffic.source.paths": []}, "traffic.source.paths", "no_trace_path"),
    (
        {**TRACE, "traffic.source.paths": ["a", "b"]},
        "traffic.source.paths",
        "trace_paths",
    ),
    (
        {**TRACE, "traffic.source.nested_timestamp_basis": "auto"},
        "traffic.source.nested_timestamp_basis",
        "basis_needs_weka",
    ),
    (
        {**TRACE, **SPLIT, "traffic.source.format": "mooncake-delta"},
        "traffic.source.format",
        "delta_needs_aggregated",
    ),
    (
        {
            "traffic.source": {
                "type": "synthetic-session",
                "session": {"shared_prefix_ratio": 0.5},
            },
            "traffic.stop": {"sessions": 2},
        },
        "traffic.source.session.prefix_groups",
        "prefix_needs_groups",
    ),
    ({"engine.workers": {}}, "engine.workers.aggregated", "missing_role"),
    (
        {"engine.mode": "disaggregated"},
        "engine.workers.prefill",
        "missing_role",
    ),
    ({"engine.workers.prefill": {}}, "engine.workers.prefill", "foreign_role"),
    ({"engine.workers.encoder": {}}, "engine.workers.encoder", "encoder_needs_images"),
    ({"engine.kv_transfer": {}}, "engine.kv_transfer", "transfer_needs_split"),
    ({"engine.nextn": 1}, "engine.nextn_accepted", "nextn_needs_accepted"),
    (
        {"engine.nextn": 1, "engine.nextn_accepted": 1.5},
        "engine.nextn_accepted",
        "accepted_range",
    ),
    ({"engine.nextn_accepted": 0.5}, "engine.nextn_accepted", "accepted_range"),
    ({"engine.context_length": "most"}, "engine.context_length", "wrong_type"),
    ({f"{AGGREGATED}.hardware": "x"}, f"{AGGREGATED}.hardware", "role_hardware"),
    (
        {f"{AGGREGATED}.kv_cache.block_size": 1},
        f"{AGGREGATED}.kv_cache.block_size",
        "small_block",
    ),
    (
        {f"{AGGREGATED}.scheduler.prefill_decode_interval": 2},
        f"{AGGREGATED}.scheduler.prefill_decode_interval",
        "interval_backend",
    ),
    (
        {f"{AGGREGATED}.kv_cache.capacity": {"type": "fixed"}},
        f"{AGGREGATED}.kv_cache.capacity",
        "one_capacity",
    ),
    (
        {
            f"{AGGREGATED}.kv_cache.capacity": {
                "type": "fixed",
                "blocks": 9,
                "memory_fraction": 0.8,
            }
        },
        f"{AGGREGATED}.kv_cache.capacity.memory_fraction",
        "foreign_field",
    ),
    (
        {f"{AGGREGATED}.timing": {"type": "fixed", "prefill_ms": 2}},
        f"{AGGREGATED}.timing.decode_ms",
        "missing_field",
    ),
    (
        {f"{AGGREGATED}.timing": {"type": "polynomial", "prefill_ms": 2}},
        f"{AGGREGATED}.timing.prefill_ms",
        "foreign_field",
    ),
    (
        {"evaluation.sla": {"ttft_ms": 1.0, "e2e_ms": 2.0}},
        "evaluation.sla.e2e_ms",
        "mixed_sla",
    ),
]


@pytest.mark.parametrize(
    ("changes", "path", "code"), RULES, ids=[f"{r[1]}-{r[2]}" for r in RULES]
)
def test_a_mistake_is_one_sentence_at_its_path(changes, path, code):
    error = refusal(changes)
    assert error.path == path
    assert code is None or error.code == code
    assert str(error).startswith(f"{path}: ")
    assert str(error).endswith(".") and "\n" not in str(error)


def test_an_unknown_field_names_the_nearest_known_one():
    assert "'backend'" in str(refusal({"engine.bakend": 1}))
    assert "'max_sequences'" in str(
        refusal({f"{AGGREGATED}.scheduler.max_sequence": 1})
    )


CHANGES = {
    "bad_enum": {"engine.mode": "agregated"},
    "unknown_field": {"engine.bakend_x": 1},
    "unknown_section": {"engin": {}},
    "domain_in_predict": {"traffic.load.concurrency": {"choices": [4, 8]}},
    "zero_tokens": {"traffic.source.input_tokens": 0},
    "opt_in_predict": {"optimization": {"target": "ttft"}},
    "both_sla_kinds": {"evaluation.sla": {"ttft_ms": 1, "e2e_ms": 2}},
    "two_stops": {"traffic.stop.requests_per_load_unit": 2},
    "wrong_load_field": {"traffic.load.requests_per_second": 1},
    "int_as_string": {"traffic.load.concurrency": "8"},
}
SETS = {
    "bad_set_index": "engine.workers.0.x=1",
    "bad_set_cross": "engine.model.foo=1",
    "bad_set_form": "novalue",
    "set_optimization": "optimization.target=ttft",
}
CASES = {
    case["case"]: case for case in load_golden("recommend/cli_errors.json")["cases"]
}


@pytest.mark.parametrize("name", [*CHANGES, *SETS])
def test_recorded_mistakes_are_bad_input_at_the_recorded_path(name):
    case = CASES[name]
    assert case["exit_code"] == 2
    error = refusal(CHANGES.get(name, {}), [SETS[name]] if name in SETS else [])
    # The reference puts the name of the source type into the path.
    wanted = (case["error_path"] or "").replace(".synthetic", "")
    assert error.path.startswith(wanted)


def test_overrides_apply_left_to_right_and_make_missing_blocks():
    config = load(
        {},
        [
            "traffic.load={type: poisson, requests_per_second: 3}",
            "traffic.load.seed=7",
            f"{AGGREGATED}.parallelism.tensor=2",
            f"{AGGREGATED}.parallelism.tensor=4",
        ],
    )
    assert at(config, "traffic.load.seed") == 7
    assert at(config, f"{AGGREGATED}.parallelism.tensor") == 4


@pytest.mark.parametrize(
    "override", ["a..b=1", "=1", "engine.model.x=1", "a.1.b=1", "a", "a=[1"]
)
def test_a_malformed_override_is_refused(override):
    assert refusal({}, [override]).code.startswith("set_")


UNBUILT = {
    "traffic.source.images": {"height": 4, "width": 4},
    "engine.speculation": {
        "kind": "ngram",
        "num_speculative_tokens": 1,
        "acceptance_rates": [0.5],
    },
    f"{AGGREGATED}.kv_cache.host_offload": {"num_host_blocks": 4},
    f"{AGGREGATED}.kv_cache.g3_offload": {"scope": "worker_local", "num_g3_blocks": 4},
    f"{AGGREGATED}.kv_cache.kvcr": {},
    f"{AGGREGATED}.kv_cache.state_cache": {},
    f"{AGGREGATED}.kv_cache.prefix_match_unit": 4,
    f"{AGGREGATED}.host_loop": True,
    f"{AGGREGATED}.frontend": {"stages": [{"service_ms": 1}]},
    f"{AGGREGATED}.host_profile": {"path": "p", "frontend": "rust"},
    f"{AGGREGATED}.vision": {},
    "execution.resources.cpu_limit": 1,
}


@pytest.mark.parametrize("path", UNBUILT)
def test_an_unbuilt_feature_is_valid_and_named(path):
    sentences = unsupported_features(load({path: UNBUILT[path]}))
    assert len(sentences) == 1 and sentences[0].startswith(f"{path}: ")


@pytest.mark.parametrize("form", ["agentic_mooncake", "weka", "dynamo"])
def test_agentic_traces_are_valid_and_named(form):
    sentences = unsupported_features(load({**TRACE, "traffic.source.format": form}))
    assert [sentence.split(":")[0] for sentence in sentences] == [
        "traffic.source.format"
    ]


def test_a_role_becomes_the_canonical_engine_record():
    config = load(
        {
            "engine.gemm_quant_mode": "fp8",
            "engine.database_mode": "SOL",
            f"{AGGREGATED}.parallelism": {"tensor": 2, "moe_expert": 2},
            f"{AGGREGATED}.timing": {"gemm_quant_mode": "bfloat16"},
        }
    )
    record = forward_pass_config(config.engine, "aggregated")
    assert (record.tp, record.moe_tp_size, record.moe_ep_size) == (2, 1, 2)
    assert (record.gemm_quant_mode, record.database_mode) == ("bfloat16", "SOL")
    assert (record.system, record.kv_block_size) == ("h100_sxm", 64)


def test_expert_sizes_of_one_on_several_gpus_say_nothing():
    config = load({f"{AGGREGATED}.parallelism": {"tensor": 2}})
    assert forward_pass_config(config.engine, "aggregated").moe_tp_size is None


def test_a_trace_lies_in_the_working_directory_or_beside_its_file(
    tmp_path, monkeypatch
):
    beside, here = tmp_path / "beside", tmp_path / "here"
    beside.mkdir()
    here.mkdir()
    monkeypatch.chdir(here)
    with pytest.raises(ConfigError, match=r"traffic\.source\.paths: no file"):
        locate_traces(["t.jsonl"], beside)
    (beside / "t.jsonl").touch()
    assert locate_traces(["t.jsonl"], beside) == (beside / "t.jsonl",)
    (here / "t.jsonl").touch()
    assert locate_traces(["t.jsonl"], beside)[0].resolve() == here / "t.jsonl"


def test_our_additions_keep_out_of_a_file_that_does_not_use_them():
    text = dump_prediction(load({}))
    for name in ("pricing", "compat", "seeds", "random_range_ratio", "burstiness"):
        assert name not in text
    config = load(
        {
            "engine.pricing": "per_request",
            "engine.compat": True,
            "traffic.load": {
                "type": "gamma",
                "requests_per_second": 2,
                "burstiness": 0.5,
            },
            "traffic.source.random_range_ratio": 0.5,
            "evaluation.seeds": 4,
        }
    )
    assert load_prediction(yaml.safe_load(dump_prediction(config))) == config
