"""The canonical forward-pass configuration: defaults, aliases, rules, round trips."""

import json

import pytest
from goldens import load_golden


FIGURES = load_golden("fpm/config_cases.json")
MINIMAL = FIGURES["base_input"]


def flatten(record, prefix=""):
    flat = {}
    for key, value in record.items():
        name = f"{prefix}.{key}" if prefix else key
        if isinstance(value, dict) and value:
            flat.update(flatten(value, name))
        else:
            flat[name] = value
    return flat


def expected_record(outcome):
    expected = flatten(FIGURES["base_normalized"])
    for name in outcome["removed"]:
        del expected[name]
    expected.update(outcome["changed"])
    # The packaged root is written as the portable word.
    expected["systems_paths"] = [
        path.replace("<packaged>", "default") for path in expected["systems_paths"]
    ]
    return expected


def cases(accepted):
    chosen = [case for case in FIGURES["cases"] if case["outcome"]["ok"] is accepted]
    return pytest.mark.parametrize("case", chosen, ids=[case["id"] for case in chosen])


@cases(accepted=True)
def test_accepted_record_has_the_reference_normal_form(case):
    from aisim_jax.config import config_record, normalize_config

    record = config_record(normalize_config(case["input"]))
    assert json.dumps(flatten(record), sort_keys=True) == json.dumps(
        expected_record(case["outcome"]), sort_keys=True
    )


@cases(accepted=True)
def test_normalizing_twice_and_saving_twice_change_nothing(case):
    from aisim_jax.config import dump_config, load_config, normalize_config

    record = normalize_config(case["input"])
    hash(record)
    text = dump_config(record)
    assert dump_config(load_config(text)) == text
    assert dump_config(normalize_config(record)) == text


@cases(accepted=False)
def test_refused_record_names_the_rule_and_the_place(case):
    from aisim_jax.config import ConfigError, normalize_config

    with pytest.raises(ConfigError) as caught:
        normalize_config(case["input"])
    expected = case["outcome"]["error"]
    assert caught.value.code == expected["code"]
    # "missing" is how the reference marks an absent field; ours names the field.
    if expected.get("path", "missing") != "missing":
        assert caught.value.path.startswith(expected["path"])
    message = str(caught.value)
    assert caught.value.path in message and "\n" not in message


def test_missing_field_is_named():
    from aisim_jax.config import ConfigError, normalize_config

    for name in MINIMAL:
        rest = {key: value for key, value in MINIMAL.items() if key != name}
        with pytest.raises(ConfigError) as caught:
            normalize_config(rest)
        assert caught.value.path == name


def test_yaml_file_saves_and_reloads_to_the_same_bytes(tmp_path):
    from aisim_jax.config import dump_config, load_config

    source = tmp_path / "worker.yaml"
    source.write_text(
        "model: Qwen/Qwen3-32B\nsystem: h200_sxm\nbackend: vllm\n"
        "worker_type: decode\ntp_size: 4\nsystems_paths: [DEFAULT]\n"
        "estimator_config: {features: {ffn_token_weight: -Infinity}}\n"
    )
    text = dump_config(load_config(source), "yaml")
    again = tmp_path / "again.yaml"
    again.write_text(text)
    assert dump_config(load_config(again), "yaml") == text
    assert load_config(again).tp == 4


def test_roots_become_absolute_without_repeats(tmp_path, monkeypatch):
    from aisim_jax.config import normalize_config

    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    record = normalize_config(
        {**MINIMAL, "systems_paths": ["data", "Default", str(tmp_path / "data")]}
    )
    assert record.systems_paths == (str(tmp_path / "data"), "default")


@pytest.mark.parametrize(
    ("change", "code", "path"),
    [
        ({"systems_paths": ["./nowhere"]}, "systems_path_missing", "systems_paths[0]"),
        ({"transfer_policy": "lots"}, "unknown_enum_value", "transfer_policy[0]"),
        ({"moe_tp_size": 0, "moe_ep_size": 1}, "nonpositive_parallelism", None),
        ({"tp": 2**32}, "wrong_type", "tp"),
        (
            {"estimator_config": {"fpm_regression": {"samplng": {}}}},
            "unknown_field",
            "estimator_config.fpm_regression.samplng",
        ),
        (
            {
                "estimation_mode": "fpm_regression",
                "estimator_config": {
                    "fpm_regression": {
                        "fit": {
                            "kind": "spline",
                            "spline": {"search": {"kind": "periodic", "step": 0}},
                        }
                    }
                },
            },
            "nonpositive_count",
            "estimator_config.fpm_regression.fit.spline.search.step",
        ),
    ],
)
def test_other_mistakes_are_named(change, code, path):
    from aisim_jax.config import ConfigError, normalize_config

    with pytest.raises(ConfigError) as caught:
        normalize_config({**MINIMAL, **change})
    assert caught.value.code == code
    if path:
        assert caught.value.path == path


def test_misspelt_field_hints_at_the_nearest_name():
    from aisim_jax.config import ConfigError, normalize_config

    with pytest.raises(ConfigError, match="'attention_dp'"):
        normalize_config({**MINIMAL, "attention_dpp": 2})


@pytest.mark.parametrize(
    ("name", "text", "claim"),
    [
        ("a.json", "{", "not valid JSON"),
        ("a.yaml", "a: [", "not valid YAML"),
        ("a.yaml", "- 1", "a configuration is a mapping"),
    ],
)
def test_broken_documents_are_one_sentence(tmp_path, name, text, claim):
    from aisim_jax import AisimError
    from aisim_jax.config import load_config

    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(AisimError, match=claim) as caught:
        load_config(path)
    assert "\n" not in str(caught.value)


def test_missing_document_is_one_sentence(tmp_path):
    from aisim_jax import AisimError
    from aisim_jax.config import load_config

    with pytest.raises(AisimError, match="No configuration file"):
        load_config(tmp_path / "none.yaml")
