"""Requests that cannot be served, and limits that nothing meets."""

from typing import Any

import numpy as np
import pytest


PLACE = ("Qwen/Qwen3-8B", "h200_sxm", "vllm")


def test_a_request_beyond_the_model_s_context_is_refused():
    from aisim_jax import AisimError
    from aisim_jax.recommend import sweep

    with pytest.raises(AisimError, match="model's context of 40960"):
        sweep(*PLACE, gpus=1, isl=40_000, osl=961)


@pytest.mark.parametrize("mode", ["complete", "compat"])
@pytest.mark.parametrize("name", ["isl", "osl"])
def test_absurd_lengths_are_refused_in_every_mode(mode, name):
    from aisim_jax import AisimError
    from aisim_jax.recommend import sweep

    length: dict[str, Any] = {name: 10**20}
    with pytest.raises(AisimError, match="shorten it"):
        sweep(*PLACE, gpus=1, mode=mode, **length)


@pytest.mark.parametrize("value", [100.5, "100", None, True, float("nan")])
def test_a_length_is_a_whole_number(value):
    from aisim_jax import AisimError
    from aisim_jax.recommend._experiment import require_count

    with pytest.raises(AisimError, match=r"isl=.* must be a whole number"):
        require_count("isl", value, 1)


def test_auto_means_the_systems_that_have_data():
    from aisim_jax.recommend import sweep

    result = sweep("Qwen/Qwen3-0.6B", "auto", "vllm", gpus=1, isl=64, osl=8)
    systems = {e.question.system for e in result.experiments}
    assert systems == {"h100_sxm", "h200_sxm", "b200_sxm"}
    assert {name.split("_")[0] for name in result.failures} == {"disagg"}


def test_one_gpu_is_served_aggregated():
    from aisim_jax.recommend import sweep

    result = sweep(*PLACE, gpus=1, isl=512, osl=64)
    assert result.chosen is not None and result.chosen.serving_mode == "agg"
    assert "at least 2 GPUs" in result.failures["disagg"]


def test_a_model_of_an_unbuilt_family_is_refused_in_one_sentence():
    from aisim_jax import AisimError
    from aisim_jax.recommend import sweep

    with pytest.raises(AisimError, match=r"(is|are) not built"):
        sweep("deepseek-ai/DeepSeek-V3.2", *PLACE[1:], gpus=8)


def test_a_capped_load_says_what_share_it_serves():
    from aisim_jax.recommend import sweep

    load = {"target_request_rate": 1000.0, "max_gpus": 2}
    found = sweep(*PLACE, gpus=2, isl=512, osl=64, **load).chosen
    assert found is not None and found.gpus_used <= 2
    share = found.replicas * found.requests_per_s / 1000.0 * 100.0
    assert found.load_served_percent == pytest.approx(share, abs=0.05)


@pytest.mark.parametrize(
    "limit",
    [
        {"tpot_ms": 0.01},
        {"request_latency_ms": 10.0},
        {"tpot_ms": 0.01, "target_request_rate": 5.0},
    ],
)
def test_where_nothing_meets_the_limit_the_closest_deployment_is_chosen(limit):
    from aisim_jax.recommend import sweep

    result = sweep(*PLACE, gpus=2, isl=512, osl=64, **limit)
    chosen = result.chosen
    assert chosen is not None and not chosen.meets_targets
    whole = "request_latency_ms" in limit
    columns = [
        e.ranked.candidates.request_latency_ms if whole else e.ranked.candidates.tpot_ms
        for e in result.experiments
    ]
    reached = chosen.request_latency_ms if whole else chosen.tpot_ms
    assert reached == np.min(np.concatenate(columns))
