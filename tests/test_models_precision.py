"""Precision follows from the checkpoint, then the backend, then the caller."""

from __future__ import annotations

import pytest

from aisim_jax import models as m
from aisim_jax._errors import InvalidInputError
from aisim_jax.models._config_json import parse_config


DENSE = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 2,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
}
EXPERTS = {
    **DENSE,
    "architectures": ["Qwen3MoeForCausalLM"],
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 128,
}


def _modes(quantization, sidecar=None, base=EXPERTS, backend="trtllm", **overrides):
    config = {**base, "quantization_config": quantization}
    side = None if sidecar is None else {"quantization": sidecar}
    spec = parse_config(config, side, name="local", where="config.json")
    p = m.resolve_precision(spec, backend, None, 100, **overrides)
    return p.gemm, p.moe, p.fmha, p.kv


def _scheme(bits, kind, strategy="channel", ignore=("lm_head",), **fields):
    weights = {"num_bits": bits, "type": kind, "strategy": strategy}
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
        "ignore": list(ignore),
        **fields,
    }


def _layers(dense, experts, **fields):
    quantized = {}
    if dense:
        quantized["model.layers.0.self_attn.o_proj"] = {"quant_algo": dense}
    if experts:
        quantized["model.layers.0.mlp.experts"] = {"quant_algo": experts}
    return {"quant_algo": "MIXED_PRECISION", "quantized_layers": quantized, **fields}


BF16 = "bfloat16"
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic"}
FP8_CACHE = {"num_bits": 8, "type": "float"}
INT8_CACHE = {"num_bits": 8, "type": "int"}


@pytest.mark.parametrize(
    ("quantization", "expected"),
    [
        (None, (BF16, BF16, BF16, BF16)),
        (FP8, ("fp8", "fp8", "fp8", "fp8")),
        ({"quant_method": "fp8"}, ("fp8_static", "fp8", "fp8", "fp8")),
        (
            {**FP8, "weight_block_size": [128, 128]},
            ("fp8_block", "fp8_block", "fp8", "fp8"),
        ),
        ({"quant_method": "mxfp4"}, (BF16, "w4a16_mxfp4", BF16, BF16)),
        (
            {"quant_method": "modelopt", "quant_algo": "NVFP4"},
            ("nvfp4", "nvfp4", "fp8", "fp8"),
        ),
        ({"kv_cache_quant_algo": "FP8"}, (BF16, BF16, BF16, "fp8")),
        ({"kv_cache_scheme": FP8_CACHE}, (BF16, BF16, BF16, "fp8")),
        ({"kv_cache_scheme": INT8_CACHE}, (BF16, BF16, BF16, BF16)),
        ({**FP8, "kv_cache_quant_algo": "none"}, ("fp8", "fp8", BF16, BF16)),
        ({**FP8, "kv_cache_scheme": "none"}, ("fp8", "fp8", "fp8", "fp8")),
        ({**FP8, "kv_cache_quant_algo": BF16}, ("fp8", "fp8", "fp8", "fp8")),
        (_scheme(8, "float"), ("fp8", "fp8", BF16, BF16)),
        (_scheme(8, "float", "block"), ("fp8_block", "fp8_block", BF16, BF16)),
        (
            _scheme(8, "float", kv_cache_scheme=FP8_CACHE),
            ("fp8", "fp8", "fp8", "fp8"),
        ),
        (_scheme(4, "int", "group"), ("int4_wo", "int4_wo", BF16, BF16)),
        (
            _scheme(8, "float", ignore=["re:.*self_attn.*"]),
            (BF16, "fp8", BF16, BF16),
        ),
        (
            _scheme(8, "float", ignore=["re:.*experts.*"]),
            ("fp8", BF16, BF16, BF16),
        ),
        (
            _scheme(8, "float", ignore=["re:.*shared_experts.*"]),
            ("fp8", "fp8", BF16, BF16),
        ),
        (
            _scheme(4, "float", "group", ignore=["re:.*self_attn.*"]),
            (BF16, "w4a16_mxfp4", BF16, BF16),
        ),
        (
            _scheme(8, "int", ignore=["re:.*mlp.experts.*"]),
            ("int8_wo", BF16, BF16, BF16),
        ),
        (_layers("FP8", "NVFP4"), ("fp8_static", "nvfp4", BF16, BF16)),
        (_layers("MXFP8", "NVFP4"), ("fp8_block", "nvfp4", BF16, BF16)),
        (_layers(None, "NVFP4"), (BF16, "nvfp4", BF16, BF16)),
        (_layers("FP8", None), ("fp8_static", BF16, BF16, BF16)),
        (_layers("NVFP4", "FP8"), ("nvfp4", "fp8", BF16, BF16)),
        (
            _layers("W4A16_NVFP4", "W4A16_NVFP4"),
            ("w4a16_nvfp4", "w4a16_nvfp4", BF16, BF16),
        ),
        (
            _layers(None, "NVFP4", quant_method="fp8", weight_block_size=[128, 128]),
            ("fp8_block", "nvfp4", BF16, BF16),
        ),
    ],
)
def test_declared_quantization_gives_the_measured_modes(quantization, expected):
    assert _modes(quantization) == expected


@pytest.mark.parametrize(
    ("weights", "cache", "expected"),
    [
        ("FP8", "FP8", ("fp8_static", "fp8", "fp8", "fp8")),
        ("FP8", None, ("fp8_static", "fp8", "fp8", "fp8")),
        ("FP8", "none", ("fp8_static", "fp8", BF16, BF16)),
        ("NVFP4", "none", ("nvfp4", "nvfp4", BF16, BF16)),
        ("MXFP4", "FP8", (BF16, "w4a16_mxfp4", "fp8", "fp8")),
        (None, "FP8", (BF16, BF16, BF16, "fp8")),
    ],
)
def test_sidecar_gives_the_measured_modes(weights, cache, expected):
    sidecar = {"quant_algo": weights, "kv_cache_quant_algo": cache}
    assert _modes(None, sidecar) == expected


def test_sidecar_wins_over_the_config():
    sidecar = {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}
    assert _modes(FP8, sidecar)[0] == "nvfp4"


def test_vllm_prefill_attention_is_inferred_bfloat16_but_can_be_overridden():
    assert _modes(FP8, backend="vllm")[2] == BF16
    assert _modes(FP8, backend="vllm", fmha="fp8")[2] == "fp8"


@pytest.mark.parametrize(
    ("model", "version", "sm_version", "fmha"),
    [
        ("deepseek-ai/DeepSeek-V3", "0.5.14", 90, BF16),
        ("deepseek-ai/DeepSeek-V3", None, 90, BF16),
        ("deepseek-ai/DeepSeek-V3", "0.5.20", 90, "fp8"),
        ("deepseek-ai/DeepSeek-V3", "0.5.14", 100, "fp8"),
        ("deepseek-ai/DeepSeek-V3", "0.5.14", 89, "fp8"),
        ("nvidia/DeepSeek-V3.1-NVFP4", "0.5.14", 90, BF16),
        ("Qwen/Qwen3-32B-FP8", "0.5.14", 90, "fp8"),
    ],
)
def test_sglang_hopper_limit_is_for_deepseek_on_one_release(
    model, version, sm_version, fmha
):
    spec = m.load_model(model)
    assert m.resolve_precision(spec, "sglang", version, sm_version).fmha == fmha


def test_overriding_one_mode_leaves_the_others_as_inferred():
    assert _modes(FP8, gemm=BF16) == (BF16, "fp8", "fp8", "fp8")
    assert _modes(FP8, kv=BF16) == ("fp8", "fp8", "fp8", BF16)
    assert _modes(None, kv="fp8") == (BF16, BF16, BF16, "fp8")


@pytest.mark.parametrize("name", [None, "", "auto", "none", "null", "AUTO"])
def test_names_that_mean_inferred(name):
    assert _modes(FP8, gemm=name, kv=name) == ("fp8", "fp8", "fp8", "fp8")


def test_int4_stands_for_weight_only_int4():
    assert _modes(None, gemm="int4")[0] == "int4_wo"


@pytest.mark.parametrize("part", ["gemm", "moe", "kv", "fmha", "comm"])
def test_unknown_mode_lists_the_known_ones(part):
    with pytest.raises(InvalidInputError, match=rf"{part} precision 'fp3'.*auto"):
        _modes(None, **{part: "fp3"})


def test_unknown_algorithm_needs_the_caller_to_name_the_modes():
    unknown = {"quant_method": "brand-new"}
    with pytest.raises(InvalidInputError, match="'brand-new' is not known"):
        _modes(unknown)
    assert _modes(unknown, gemm="fp8", moe="fp8")[:2] == ("fp8", "fp8")
    assert _modes(unknown, base=DENSE, gemm="fp8")[0] == "fp8"


def test_unknown_cache_type_is_not_taken_for_another():
    with pytest.raises(InvalidInputError, match="kv cache int8"):
        _modes({**FP8, "kv_cache_quant_algo": "INT8"})


def test_experts_without_kernels_ask_for_another_mode():
    with pytest.raises(InvalidInputError, match="no moe kernels exist"):
        _modes(_scheme(8, "int"))
    assert _modes(_scheme(8, "int"), base=DENSE)[:2] == ("int8_wo", BF16)


def test_excluded_projections_stay_in_bfloat16_whatever_the_gemm_mode():
    spec = m.load_model("nvidia/Kimi-K2.5-NVFP4")
    for gemm in (None, "fp8_block"):
        precision = m.resolve_precision(spec, "trtllm", None, 100, gemm=gemm)
        layout = m.Layout(tp=8, moe_ep=8)
        built = m.build_operations(spec, precision, layout, "trtllm").context
        block = next(o for o in built if isinstance(o, m.Fallback))
        shared = next(o for o in built if o.name == "context_shared_gate_up_gemm")
        assert isinstance(block.primary, m.MlaModule)
        assert block.primary.gemm_quant == BF16
        assert isinstance(shared, m.Gemm)
        assert shared.quant == precision.gemm
