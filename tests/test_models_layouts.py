"""Layouts that a model cannot run under are refused with the remedy in the sentence."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_records import leaves

from aisim_jax import models as m
from aisim_jax._errors import InvalidInputError, UnsupportedError


DENSE = "meta-llama/Meta-Llama-3.1-8B"
EXPERTS = "Qwen/Qwen3-235B-A22B-FP8"


def _build(model, layout, backend: m.Backend = "vllm", nextn=0, **modes):
    spec = m.load_model(model)
    precision = m.resolve_precision(spec, backend, **modes)
    return m.build_operations(spec, precision, layout, backend, nextn=nextn)


@pytest.mark.parametrize(
    ("model", "layout", "sentence"),
    [
        (DENSE, m.Layout(tp=6), r"tp=6 does not divide 32 .* 1, 2, 4, 8, 16, 32"),
        (DENSE, m.Layout(tp=0), r"tp is 0, but must be an integer of at least 1"),
        (DENSE, m.Layout(pp=-1), r"pp is -1"),
        (EXPERTS, m.Layout(tp=4), r"tp\*dp\*cp = 4 .* moe_tp\*moe_ep = 1"),
        (
            EXPERTS,
            m.Layout(tp=64, dp=4, moe_ep=256),
            r"moe_ep=256 exceeds its 128 experts",
        ),
        (
            EXPERTS,
            m.Layout(tp=8, moe_tp=8),
            r"1536-wide experts to 192, .* 128-wide fp8_block tiles; use moe_tp of 1, 2, 4 ",
        ),
    ],
)
def test_impossible_layout_names_value_limit_and_remedy(model, layout, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        _build(model, layout)


def test_tile_rule_follows_the_expert_precision_in_use():
    layout = m.Layout(tp=8, moe_tp=8)
    assert _build(EXPERTS, layout, moe="bfloat16").context
    with pytest.raises(InvalidInputError, match="fp8_block tiles"):
        _build("Qwen/Qwen3-235B-A22B", layout, moe="fp8_block")


def test_latent_attention_models_are_not_held_to_the_tile_rule():
    assert _build("deepseek-ai/DeepSeek-V3", m.Layout(tp=32, moe_tp=32)).context


def test_dense_models_ignore_expert_sizes():
    layout = m.Layout(tp=4, dp=2, moe_tp=2)
    assert _build(DENSE, layout) == _build(DENSE, m.Layout(tp=4, dp=2))


@pytest.mark.parametrize("nextn", [-1, True])
def test_nextn_must_be_a_count(nextn):
    with pytest.raises(InvalidInputError, match="nextn is"):
        _build(DENSE, m.Layout(), nextn=nextn)


def test_unknown_backend_is_refused():
    spec = m.load_model(DENSE)
    precision = m.resolve_precision(spec, "vllm")
    with pytest.raises(
        InvalidInputError, match="'tgi' is not known; use one of trtllm, sglang"
    ):
        m.check_layout(spec, precision, m.Layout(), "tgi", nextn=0)


@pytest.mark.parametrize("backend", ["vllm", "trtllm"])
def test_context_parallelism_is_only_built_for_sglang(backend):
    with pytest.raises(UnsupportedError, match=f"not built for {backend}"):
        _build(DENSE, m.Layout(cp=2), backend=backend)


@pytest.mark.parametrize("layout", [m.Layout(tp=2, cp=2), m.Layout(dp=2, cp=2)])
def test_context_parallelism_excludes_tensor_and_data_parallelism(layout):
    with pytest.raises(InvalidInputError, match="needs tp=1 and dp=1"):
        _build(DENSE, layout, backend="sglang")


@pytest.mark.parametrize(
    "model", ["Qwen/Qwen3.5-27B", "deepseek-ai/DeepSeek-V3.2", "google/gemma-4-26B-A4B"]
)
def test_unbuilt_family_says_so_in_one_sentence(model):
    with pytest.raises(UnsupportedError, match=r"not built; built families are"):
        _build(model, m.Layout())


def test_window_in_every_layer_is_refused_rather_than_priced_wrongly():
    with pytest.raises(UnsupportedError, match="4096-token window"):
        _build("mistralai/Mistral-7B-v0.1", m.Layout())
    assert _build("mistralai/Mistral-7B-v0.3", m.Layout()).context


MODELS = (
    DENSE,
    "Qwen/Qwen3-32B-FP8",
    EXPERTS,
    "mistralai/Mixtral-8x7B-v0.1",
    "openai/gpt-oss-120b",
    "deepseek-ai/DeepSeek-V3",
    "nvidia/DeepSeek-V3.1-NVFP4",
)
sizes = st.sampled_from((1, 2, 4, 8))


@settings(deadline=None, max_examples=120)
@given(
    st.sampled_from(MODELS),
    st.sampled_from(("vllm", "sglang", "trtllm")),
    st.sampled_from((1, 2, 4)),
    sizes,
    st.integers(0, 3),
)
def test_weights_never_grow_with_tp_and_repeated_names_are_attention_only(
    model, backend, tp, pp, nextn
):
    narrow = _build(model, m.Layout(tp=tp, pp=pp, moe_ep=tp), backend, nextn)
    wide = _build(model, m.Layout(tp=2 * tp, pp=pp, moe_ep=2 * tp), backend, nextn)
    resident = [
        sum(size for _, size in m.resident_weight_bytes(lists.context))
        for lists in (narrow, wide)
    ]
    assert resident[1] < resident[0]
    for operations in (narrow.context, narrow.generation):
        names = [operation.name for operation in operations]
        repeated = {name for name in names if names.count(name) > 1}
        assert repeated <= {"context_attention", "generation_attention"}


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(MODELS), sizes, st.integers(0, 5))
def test_draft_tokens_scale_every_decode_operation_alike(model, tp, nextn):
    layout = m.Layout(tp=tp, pp=2, moe_ep=tp)
    spec = m.load_model(model)
    plain = _build(model, layout).generation
    drafted = _build(model, layout, nextn=nextn).generation
    growth = (spec.layers + nextn) / spec.layers
    for before, after in zip(leaves(plain), leaves(drafted), strict=True):
        assert after.scale == pytest.approx(before.scale * growth, rel=1e-12)
