"""What context fits, and a refusal that names need, room and remedy."""

from __future__ import annotations

import pytest

from aisim_jax._errors import InvalidInputError
from aisim_jax.memory import capacity_report
from aisim_jax.models import Layout


MODEL = "nvidia/Llama-3.1-70B-Instruct-FP8"


def _one_gib_left(kv):
    """The 70B model on one 80 GiB device with exactly 1.0 GiB left for KV."""
    question = (MODEL, "h100_sxm", "vllm")
    options = {
        "memory_fraction": 1.0,
        "block_tokens": 16,
        "context_length": 131072,
        "precision": {"kv": kv},
    }
    spare = capacity_report(*question, **options).pool_bytes
    return capacity_report(
        *question, reserved_bytes=int(spare) - 2**30, isl=1000, osl=200, **options
    )


@pytest.mark.parametrize(
    ("kv", "bytes_per_token", "blocks", "tokens", "need"),
    [
        ("bfloat16", 327680, 204, 3264, "40.0 GiB"),
        ("fp8", 163840, 409, 6544, "20.0 GiB"),
    ],
)
def test_d4_context_that_fits(kv, bytes_per_token, blocks, tokens, need):
    report = _one_gib_left(kv)
    assert report.pool_bytes == 2**30
    assert report.kv_bytes_per_token == bytes_per_token
    assert report.blocks == blocks
    assert report.longest_context_tokens == tokens
    assert not report.fits
    assert report.smallest_tp == 2
    assert report.refusal is not None
    for part in ("131072-token", need, "1.0 GiB is free", f"context_length<={tokens}"):
        assert part in report.refusal
    assert "tp_size>=2" in report.refusal


def test_requests_are_counted_half_way_and_at_their_end():
    report = _one_gib_left("bfloat16")
    assert report.steady_requests == 3264 // 1100
    assert report.safe_requests == 204 // 75


def test_remedies_of_a_refusal_work():
    report = _one_gib_left("bfloat16")
    options = {"memory_fraction": 1.0, "block_tokens": 16, "precision": {"kv": "bf16"}}
    options["precision"] = {"kv": "bfloat16"}
    reserved = int(report.loads.reserved)
    shorter = capacity_report(
        MODEL,
        "h100_sxm",
        "vllm",
        context_length=report.longest_context_tokens,
        reserved_bytes=reserved,
        **options,
    )
    wider = capacity_report(
        MODEL,
        "h100_sxm",
        "vllm",
        Layout(tp=2),
        context_length=131072,
        reserved_bytes=reserved,
        **options,
    )
    assert shorter.fits and shorter.refusal is None
    assert wider.fits and wider.refusal is None


def test_no_room_at_all_offers_only_a_wider_layout():
    report = capacity_report("meta-llama/Meta-Llama-3.1-70B", "h100_sxm", "vllm")
    assert report.pool_bytes < 0 and report.tokens == 0
    assert report.refusal is not None
    assert "0.0 GiB is free" in report.refusal
    assert f"tp_size>={report.smallest_tp}" in report.refusal
    assert "context_length<=" not in report.refusal


def test_expert_sizes_follow_the_width():
    layout = Layout(tp=1, dp=4, moe_ep=4)
    report = capacity_report("deepseek-ai/DeepSeek-V3", "h200_sxm", "sglang", layout)
    assert not report.fits
    assert report.smallest_tp is not None and report.smallest_tp > 1


def test_context_defaults_to_the_model_s_own():
    report = capacity_report("meta-llama/Meta-Llama-3.1-8B", "h200_sxm", "trtllm")
    assert report.context_tokens == 131072
    assert report.fits
    assert report.as_dict()["layout"] == "tp1pp1dp1etp1ep1"


def test_half_of_a_request_shape_is_refused():
    with pytest.raises(InvalidInputError, match="give both"):
        capacity_report("meta-llama/Meta-Llama-3.1-8B", "h200_sxm", "vllm", isl=100)
