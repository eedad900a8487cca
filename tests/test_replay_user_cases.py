"""What people reported about tools of this kind, as small cases with the right answer.

Those of the SGLang cache are with its engine.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from replay_answers import predicted, printed_rows


CONTEXT_TOKENS = 131_072
BLOCK_TOKENS = 16
# Prompts and chunks that add nothing but time.
LONGER = (
    (8192, 8192),
    (16_384, 8192),
    (32_768, 8192),
    (4096, 2048),
    (122_880, 2048),
)


def configuration(budget: int, traffic: dict[str, Any]) -> dict[str, Any]:
    """One worker of fixed step times whose cache holds everything."""
    return {
        "engine": {
            "model": "Qwen/Qwen3-32B-FP8",
            "hardware": "h200_sxm",
            "backend": "vllm",
            "context_length": CONTEXT_TOKENS,
            "workers": {
                "aggregated": {
                    "scheduler": {"max_batched_tokens": budget, "max_sequences": 8},
                    "kv_cache": {
                        "block_size": BLOCK_TOKENS,
                        "capacity": {
                            "type": "fixed",
                            "blocks": 4 * CONTEXT_TOKENS // BLOCK_TOKENS,
                        },
                    },
                    "timing": {"type": "fixed", "prefill_ms": 10.0, "decode_ms": 4.0},
                }
            },
        },
        "traffic": traffic,
    }


def one_after_another(isl: int, osl: int, requests: int) -> dict[str, Any]:
    """Equal prompts, one at a time."""
    return {
        "source": {
            "type": "synthetic",
            "input_tokens": isl,
            "output_tokens": osl,
            "cached_prefix_tokens": isl,
        },
        "load": {"type": "concurrency", "concurrency": 1},
        "stop": {"requests": requests},
    }


def replayed_trace(folder: Path, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A trace of distinct prompts, written to `folder`."""
    lines = [
        json.dumps({"output_length": 2, "hash_ids": [number], **row}) + "\n"
        for number, row in enumerate(rows)
    ]
    (folder / "trace.jsonl").write_text("".join(lines))
    return {
        "source": {
            "type": "trace",
            "format": "mooncake",
            "paths": ["trace.jsonl"],
            "block_size": 512,
        },
        "load": {"type": "trace_timestamps"},
    }


@pytest.mark.parametrize(
    ("isl", "budget"),
    [
        (4096, 8192),
        (122_880, 8192),
        *(
            pytest.param(isl, budget, marks=pytest.mark.slow_replay)
            for isl, budget in LONGER
        ),
    ],
)
def test_a_repeated_prompt_is_reused_but_for_its_last_block_whatever_the_chunk(
    isl: int, budget: int, tmp_path: Path
) -> None:
    traffic = one_after_another(isl, osl=8, requests=2)
    prediction = predicted(configuration(budget, traffic), tmp_path)
    printed = printed_rows(prediction)
    assert printed["session_0", 0]["reused_input_tokens"] == 0
    assert printed["session_1", 0]["reused_input_tokens"] == isl - BLOCK_TOKENS


def test_a_row_without_timestamp_arrives_at_the_start_as_in_the_reference(
    tmp_path: Path,
) -> None:
    rows = [{"input_length": 8}, {"input_length": 8, "timestamp": 100}]
    traffic = replayed_trace(tmp_path, rows)
    prediction = predicted(configuration(8192, traffic), tmp_path)
    assert prediction.runs[0].replayed.arrival_ms.tolist() == [0.0, 100.0]


def accept_length(prediction: Any) -> float:
    """Tokens after the first per decode pass."""
    replayed = prediction.runs[0].replayed
    passes = replayed.passes()
    decodes = int((passes.passes * (passes.decode_requests > 0)).sum())
    times = replayed.token_times()
    tokens = len(times.at_ms) - replayed.status.size
    instants = len(np.unique(times.at_ms)) - replayed.status.size
    assert instants == decodes
    return tokens / decodes


@pytest.mark.parametrize(("drafts", "length"), [(2, 3.0), (0, 1.0)])
def test_accept_length_counts_tokens_of_decode_passes_alone(
    drafts: int, length: float, tmp_path: Path
) -> None:
    config = configuration(8192, one_after_another(64, 7, requests=1))
    config["engine"]["model"] = "deepseek-ai/DeepSeek-V3"
    if drafts:
        config["engine"] |= {"nextn": drafts, "nextn_accepted": float(drafts)}
    assert accept_length(predicted(config, tmp_path)) == length
