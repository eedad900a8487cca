"""Launch commands name what was priced."""

from dataclasses import replace

import pytest
from sweep_samples import sweep_report


QUESTION = {"isl": 4000, "osl": 1000}


def commands(backend, serving_mode="agg", **sizes):
    from aisim_jax.report import launch_commands

    row = sweep_report().best[serving_mode][0]
    workers = tuple(replace(worker, backend=backend, **sizes) for worker in row.workers)
    row = replace(row, workers=workers)
    return launch_commands(row, "org/model", QUESTION)


@pytest.mark.parametrize(
    ("backend", "claims"),
    [
        (
            "vllm",
            [
                "--tensor-parallel-size 4",
                "--data-parallel-size 2",
                "--enable-expert-parallel",
                "--max-num-seqs 64",
                "--kv-cache-dtype fp8",
            ],
        ),
        (
            "sglang",
            [
                "--tp-size 8",
                "--dp-size 2 --enable-dp-attention",
                "--ep-size 8",
                "--max-running-requests 128",
                "--kv-cache-dtype fp8_e4m3",
            ],
        ),
        ("trtllm", ["--tp_size 8", "--ep_size 8", "--max_batch_size 64"]),
    ],
)
def test_sizes_reach_the_command(backend, claims):
    (command,) = commands(backend, tp=4, dp=2, moe_ep=8)
    for claim in claims:
        assert claim in command.text


def test_options_that_have_no_flag_come_as_a_file():
    (command,) = commands("trtllm", dp=2, moe_ep=2)
    assert "--extra_llm_api_options agg.yaml" in command.text
    assert "enable_attention_dp: true" in command.options_yaml
    assert "dtype: fp8" in command.options_yaml


@pytest.mark.parametrize("backend", ["vllm", "sglang", "trtllm"])
def test_each_role_gets_its_command(backend):
    prefill, decode = commands(backend, "disagg")
    assert "prefill worker on 1 GPU; start 4" in prefill.title
    assert "decode worker on 2 GPUs; start 2" in decode.title
    assert prefill.text != decode.text


@pytest.mark.parametrize(
    ("backend", "flag"),
    [
        ("vllm", "--max-num-batched-tokens 8002"),
        ("sglang", "--chunked-prefill-size 8000"),
        ("trtllm", "--max_num_tokens 8002"),
    ],
)
def test_prefill_workers_take_their_prompts_in_one_step(backend, flag):
    prefill, decode = commands(backend, "disagg", batch=2)
    assert flag in prefill.text
    assert flag.split()[0] not in decode.text


def test_context_parallelism_is_said_where_no_flag_is_common():
    (command,) = commands("sglang", cp=2)
    assert "context parallelism 2" in command.title
