"""Resident weights per operation equal the reference's to the byte."""

from __future__ import annotations

from goldens import load_golden

from aisim_jax import models as m


def test_resident_bytes_of_every_operation_equal_the_reference():
    checked = 0
    for case in load_golden("kv/weights_breakdown.json")["cases"]:
        spec = m.load_model(case["model"])
        if spec.family not in m.BUILT_FAMILIES or "items" not in case:
            continue
        sizes = case["topology"]
        layout = m.Layout(
            tp=sizes["tp"],
            pp=sizes["pp"],
            dp=sizes["attention_dp"],
            moe_tp=sizes["moe_tp"] or 1,
            moe_ep=sizes["moe_ep"] or 1,
        )
        precision = m.resolve_precision(spec, case["backend"])
        built = m.build_operations(spec, precision, layout, case["backend"])
        resident = m.resident_weight_bytes(built.context)
        assert [list(pair) for pair in resident] == case["items"], case["model"]
        total = sum(size for _, size in resident)
        assert total == case["target_resident_bytes_before_pp"]
        checked += 1
    assert checked > 150


def test_fallback_counts_its_alternative_only_where_the_primary_keeps_nothing():
    kernel = m.MlaModule("module", 1.0, 8, "fp8", "fp8", "fp8", 128, is_context=True)
    linear = m.Gemm("linear", 2.0, n=3, k=5, quant="bfloat16")
    other = m.Gemm("other", 1.0, n=1, k=1, quant="bfloat16")
    block = m.Fallback("block", kernel, (linear,))
    assert m.resident_weight_bytes([block]) == [("block", 60.0)]
    block = m.Fallback("block", linear, (other,))
    assert m.resident_weight_bytes([block]) == [("block", 60.0)]
    both = m.Overlap("both", (linear,), (other,))
    assert m.resident_weight_bytes([both]) == [("both", 62.0)]
