"""Operation lists equal the reference's, field by field."""

from __future__ import annotations

import pytest
from goldens import load_golden
from op_records import leaves, records

from aisim_jax import models as m
from aisim_jax._errors import InvalidInputError, UnsupportedError


SM = {
    "h100_sxm": 90,
    "h200_sxm": 90,
    "b200_sxm": 100,
    "gb200": 100,
    "b300_sxm": 103,
    "gb300": 103,
}
ERRORS = {"ValueError": InvalidInputError, "NotImplementedError": UnsupportedError}
# Other names for one mode.
MODES = {"int4": "int4_wo"}


def _built(case):
    """Whether the case is of a family and a parallelism that is built."""
    overrides = case.get("overrides") or {}
    return (
        m.load_model(case["model"]).family in m.BUILT_FAMILIES
        and case["parallel"].get("dcp", 1) == 1
        and "moe_comm_backend" not in {**case, **overrides}
    )


def _layout(parallel):
    return m.Layout(**{k: v for k, v in parallel.items() if k in m.Layout.__slots__})


def _lanes(operations):
    """Attention lanes of a golden list (taken as input: they depend on the data)."""
    for operation in operations:
        ((kind, fields),) = operation.items()
        if kind in ("ContextAttention", "GenerationAttention"):
            return tuple(fields["lane_order"])
    return ("default",)


def _spec_id(case):
    parallel = "-".join(f"{k}{v}" for k, v in case["parallel"].items())
    return f"{case['model'].split('/')[1]}-{case['backend']}-{parallel}"


LISTS = [
    spec
    for name in ("op_level/op_lists.json", "op_level_breadth/op_lists.json")
    for spec in load_golden(name)["specs"]
    if _built(spec)
]
CASES = [case for case in load_golden("models/cases.json")["cases"] if _built(case)]


@pytest.mark.parametrize("golden", LISTS, ids=_spec_id)
def test_lists_equal_the_reference_field_by_field(golden):
    spec = m.load_model(golden["model"])
    precision = m.resolve_precision(spec, golden["backend"], None, SM[golden["system"]])
    built = m.build_operations(
        spec,
        precision,
        _layout(golden["parallel"]),
        golden["backend"],
        nextn=golden["parallel"].get("nextn", 0),
        context_lanes=_lanes(golden["context_ops"]),
        generation_lanes=_lanes(golden["generation_ops"]),
    )
    assert built.context == records(golden["context_ops"])
    assert built.generation == records(golden["generation_ops"])


def _build(case):
    overrides = case.get("overrides") or {}
    spec = m.load_model(case["model"])
    precision = m.resolve_precision(
        spec,
        case["backend"],
        case.get("backend_version"),
        SM[case["system"]],
        gemm=overrides.get("gemm_quant_mode"),
        moe=overrides.get("moe_quant_mode"),
        kv=overrides.get("kvcache_quant_mode"),
        fmha=overrides.get("fmha_quant_mode"),
    )
    return precision, m.build_operations(
        spec,
        precision,
        _layout(case["parallel"]),
        case["backend"],
        nextn=case["parallel"].get("nextn") or 0,
    )


def _names(operations):
    """Distinct names in order: figures add operations of one name into one column."""
    return list(dict.fromkeys(operation.name for operation in operations))


def test_every_case_has_the_precision_and_operation_names_of_the_reference():
    assert len(CASES) > 200
    for case in CASES:
        if "error" in case:
            continue
        precision, built = _build(case)
        quant = {k: MODES.get(v, v) for k, v in case["quant"].items()}
        assert (precision.gemm, precision.moe) == (quant["gemm"], quant["moe"]), case
        assert (precision.kv, precision.fmha) == (quant["kv"], quant["fmha"]), case
        # An empty list of names: every row of that phase failed.
        if case["context_ops"]:
            assert _names(built.context) == case["context_ops"], case
        if case["generation_ops"]:
            assert _names(built.generation) == case["generation_ops"], case


def test_cases_that_the_reference_refuses_are_refused_alike():
    refused = [case for case in CASES if "error" in case]
    assert refused
    for case in refused:
        with pytest.raises(ERRORS[case["error"]["type"]]):
            _build(case)


def test_hand_over_between_stages_grows_with_draft_tokens_like_all_decode_scales():
    spec = m.load_model("meta-llama/Meta-Llama-3.1-8B")
    built = m.build_operations(
        spec, m.resolve_precision(spec, "vllm"), m.Layout(pp=3), "vllm", nextn=2
    )
    *_, prefill_hop = leaves(built.context)
    *_, decode_hop = leaves(built.generation)
    assert prefill_hop.scale == 2
    assert decode_hop.scale == 2 * (32 + 2) / 32


def test_all_gather_of_a_granular_mla_block_follows_its_output_projection():
    spec = m.load_model("nvidia/DeepSeek-V3.1-NVFP4")
    precision = m.resolve_precision(spec, "sglang", None, 100)
    built = m.build_operations(spec, precision, m.Layout(moe_ep=8, cp=8), "sglang")
    names = [operation.name for operation in built.context]
    gather = names.index("context_cp_all_gather")
    assert names[gather - 1 : gather + 2 : 2] == [
        "context_proj_gemm",
        "context_add_norm_2",
    ]
