"""Known checkpoints price offline under the names people use."""

from __future__ import annotations

import pytest
from goldens import load_golden

from aisim_jax import models as m
from aisim_jax._errors import UnknownModelError


GEOMETRY = (
    ("family", "family"),
    ("architecture", "architecture"),
    ("layers", "layers"),
    ("heads", "heads"),
    ("kv_heads", "kv_heads"),
    ("hidden", "hidden"),
    ("intermediate", "intermediate"),
    ("vocab", "vocab"),
    ("context_length", "context"),
)
FACTS = load_golden("kv/model_facts.json")["models"]


@pytest.mark.parametrize("facts", FACTS, ids=lambda row: row["model"])
def test_geometry_and_inferred_precision_equal_the_reference(facts):
    spec = m.load_model(facts["model"])
    for ours, theirs in GEOMETRY:
        assert getattr(spec, ours) == facts[theirs], ours
    if spec.family != "GLM53FLASH":
        assert spec.head_dim == facts["head_dim"]
    # The reference reports no experts for families that keep them elsewhere.
    if facts["num_experts"]:
        assert spec.experts == facts["num_experts"]
        assert spec.topk == facts["topk"]
        assert spec.moe_intermediate == facts["moe_intermediate"]
    for backend, quant in facts["quant"].items():
        precision = m.resolve_precision(spec, backend)
        assert precision.gemm == quant["gemm"]
        assert precision.moe == quant["moe"]
        assert precision.kv == quant["kvcache"]
        assert precision.fmha == quant["fmha"]


def test_at_least_forty_checkpoints_price_offline():
    lowered = set()
    for name in m.model_names():
        spec = m.load_model(name)
        windowed = spec.architecture == "MistralForCausalLM" and spec.sliding_window
        if spec.family not in m.BUILT_FAMILIES or windowed:
            continue
        precision = m.resolve_precision(spec, "vllm")
        assert m.build_operations(spec, precision, m.Layout(), "vllm").context
        lowered.add((spec.family, name))
    per_family = {f: sum(k == f for k, _ in lowered) for f in m.BUILT_FAMILIES}
    assert sum(per_family.values()) >= 100
    assert per_family["LLAMA"] >= 40
    assert per_family["MOE"] >= 20
    assert per_family["DEEPSEEK"] >= 10


def test_every_entry_states_its_origin():
    origins = {m.load_model(name).source for name in m.model_names()}
    assert origins == {"checkpoint config.json", "public config.json"}


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Meta-Llama-3.1-8B"),
        ("unsloth/Meta-Llama-3.1-8B-Instruct", "meta-llama/Meta-Llama-3.1-8B"),
        ("LLAMA-3.1-70b", "meta-llama/Meta-Llama-3.1-70B"),
        ("meta-llama/Llama-2-7b-chat-hf", "meta-llama/Llama-2-7b-hf"),
        ("qwen/qwen3-8b-base", "Qwen/Qwen3-8B"),
        ("Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-7B"),
        ("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct"),
        (
            "mistralai/Mixtral-8x7B-Instruct-v0.1",
            "mistralai/Mixtral-8x7B-v0.1",
        ),
        ("deepseek-ai/DeepSeek-V3-Base", "deepseek-ai/DeepSeek-V3"),
        ("unsloth/DeepSeek-R1", "deepseek-ai/DeepSeek-R1"),
        ("Qwen3-32B-FP8", "Qwen/Qwen3-32B-FP8"),
        (
            "neuralmagic/Meta-Llama-3.1-8B-Instruct-FP8-dynamic",
            "RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic",
        ),
        (
            "nvidia/Llama-3.3-70B-Instruct-FP4",
            "nvidia/Llama-3.3-70B-Instruct-NVFP4",
        ),
    ],
)
def test_hub_name_variants_reach_their_checkpoint(spelling, name):
    assert m.canonical_name(spelling) == name
    assert m.load_model(spelling) == m.load_model(name)


def test_precision_ending_is_never_dropped_nor_borrowed_from_another_organisation():
    with pytest.raises(UnknownModelError):
        m.load_model("Qwen/Qwen2.5-7B-Instruct-FP8")
    with pytest.raises(UnknownModelError):
        m.load_model("somebody/Qwen3-32B-FP8")


def test_unknown_name_offers_the_closest_and_the_remedy():
    with pytest.raises(UnknownModelError, match=r"Qwen/Qwen3-8B.*local directory"):
        m.load_model("Qwen/Qwen3-9B")


def test_rereleases_share_geometry_with_their_model():
    original = m.load_model("deepseek-ai/DeepSeek-V3")
    for name in ("DeepSeek-V3-0324", "DeepSeek-V3.1", "DeepSeek-R1-0528"):
        spec = m.load_model(name)
        assert (spec.layers, spec.experts) == (original.layers, original.experts)
        assert spec.checkpoint == original.checkpoint
