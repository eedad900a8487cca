"""A checkpoint's own files give the same model as the catalogue, or a clear error."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from aisim_jax import models as m
from aisim_jax._errors import InvalidInputError, UnknownModelError, UnsupportedError


LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}
MODELOPT_FP8 = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}


def _write(folder, config, sidecar=None):
    folder.mkdir(exist_ok=True)
    text = config if isinstance(config, str) else json.dumps(config)
    (folder / "config.json").write_text(text)
    if sidecar is not None:
        (folder / "hf_quant_config.json").write_text(json.dumps(sidecar))
    return str(folder)


def _same_model(local, known):
    """Equality up to where the numbers came from."""
    return replace(local, name=known.name, source=known.source) == known


def test_directory_and_file_give_the_catalogue_model(tmp_path):
    known = m.load_model("meta-llama/Meta-Llama-3.1-8B")
    folder = _write(tmp_path / "m", LLAMA)
    assert _same_model(m.load_model(folder), known)
    assert _same_model(m.load_model(f"{folder}/config.json"), known)


def test_sidecar_beside_the_config_sets_the_precision(tmp_path):
    spec = m.load_model(_write(tmp_path / "m", LLAMA, MODELOPT_FP8))
    assert m.resolve_precision(spec, "trtllm") == m.Precision(
        "fp8_static", "fp8", "fp8", "fp8"
    )


def test_language_model_of_a_multimodal_checkpoint_is_found(tmp_path):
    nested = {"architectures": LLAMA["architectures"], "text_config": LLAMA}
    known = m.load_model("meta-llama/Meta-Llama-3.1-8B")
    assert _same_model(m.load_model(_write(tmp_path / "m", nested)), known)


def test_absent_kv_heads_mean_plain_multi_head_attention(tmp_path):
    config = {k: v for k, v in LLAMA.items() if k != "num_key_value_heads"}
    assert m.load_model(_write(tmp_path / "m", config)).kv_heads == 32


@pytest.mark.parametrize(
    "field",
    ["num_hidden_layers", "hidden_size", "vocab_size", "intermediate_size"],
)
def test_missing_field_is_named_with_its_file(tmp_path, field):
    config = {k: v for k, v in LLAMA.items() if k != field}
    with pytest.raises(InvalidInputError, match=rf"config\.json: field '{field}'"):
        m.load_model(_write(tmp_path / "m", config))


@pytest.mark.parametrize("value", [0, -1, 1.5, "8", True, [8]])
@pytest.mark.parametrize("field", ["num_attention_heads", "num_key_value_heads"])
def test_field_that_is_no_positive_integer_is_named(tmp_path, field, value):
    with pytest.raises(InvalidInputError, match=f"field '{field}' is"):
        m.load_model(_write(tmp_path / "m", {**LLAMA, field: value}))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("{", "not valid JSON"), ("[1]", "holds a list"), ("{}", "'architectures'")],
)
def test_malformed_file_is_one_sentence(tmp_path, text, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        m.load_model(_write(tmp_path / "m", text))


def test_corrupt_bytes_are_one_sentence(tmp_path):
    (tmp_path / "config.json").write_bytes(b"\xff\xfe\x00\x00")
    with pytest.raises(InvalidInputError, match="not valid JSON"):
        m.load_model(str(tmp_path))


@pytest.mark.parametrize(
    ("quantization", "field"),
    [
        ("fp8", "quantization_config"),
        ({"quant_method": "fp8", "weight_block_size": 128}, "weight_block_size"),
        ({"quant_method": "fp8", "weight_block_size": [0, 0]}, "weight_block_size"),
        ({"quant_algo": "NVFP4", "ignore": "lm_head"}, "ignore"),
        ({"quant_method": "compressed-tensors", "config_groups": []}, "config_groups"),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"a": 1}},
            "config_groups.a",
        ),
    ],
)
def test_malformed_quantization_names_the_field(tmp_path, quantization, field):
    config = {**LLAMA, "quantization_config": quantization}
    with pytest.raises(InvalidInputError, match=field):
        m.load_model(_write(tmp_path / "m", config))


def test_directory_without_config_says_what_is_missing(tmp_path):
    with pytest.raises(InvalidInputError, match=r"config\.json: no such file"):
        m.load_model(str(tmp_path))


def test_path_that_does_not_exist_is_an_unknown_model():
    with pytest.raises(UnknownModelError, match="local directory"):
        m.load_model("/no/such/checkpoint")


def test_experts_without_experts_per_token_are_refused(tmp_path):
    config = {**LLAMA, "architectures": ["MixtralForCausalLM"], "num_local_experts": 8}
    with pytest.raises(InvalidInputError, match="num_experts_per_tok"):
        m.load_model(_write(tmp_path / "m", config))


def test_mixture_of_experts_without_experts_is_refused(tmp_path):
    config = {**LLAMA, "architectures": ["Qwen3MoeForCausalLM"]}
    with pytest.raises(InvalidInputError, match="number of experts is missing"):
        m.load_model(_write(tmp_path / "m", config))


def test_unknown_architecture_loads_but_has_no_operations(tmp_path):
    config = {**LLAMA, "architectures": ["BrandNewForCausalLM"]}
    spec = m.load_model(_write(tmp_path / "m", config))
    assert spec.layers == 32
    with pytest.raises(UnsupportedError, match="BrandNewForCausalLM"):
        m.build_operations(spec, m.resolve_precision(spec, "vllm"), m.Layout(), "vllm")
