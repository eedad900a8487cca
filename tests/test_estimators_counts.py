"""Counts that cannot be: one sentence each, from every way to ask."""

from __future__ import annotations

import functools

import numpy as np
import pytest


@functools.cache
def worker():
    from aisim_jax import best_available

    return best_available(
        {
            "model": "meta-llama/Llama-3.1-8B",
            "system": "h100_sxm",
            "backend": "vllm",
            "worker_type": "aggregated",
        }
    )


@pytest.mark.parametrize("count", [-1, 2**33])
def test_counts_outside_their_range_are_refused(count) -> None:
    from aisim_jax import AisimError

    model = worker()
    for call in (
        lambda: model.predict_decode_latency_total(64, count),
        lambda: model.predict_prefill_latency_total(1, count, 0),
        lambda: model.estimate_forward_pass_time_ms({"sum_decode_kv_tokens": count}),
    ):
        with pytest.raises(AisimError, match="count"):
            call()


@pytest.mark.parametrize("count", [float("nan"), float("inf"), 1.5, "7"])
def test_records_hold_whole_counts(count) -> None:
    from aisim_jax import AisimError

    with pytest.raises(AisimError, match="count"):
        worker().estimate_forward_pass_time_ms({"sum_decode_kv_tokens": count})


def test_counters_of_different_shapes_are_refused() -> None:
    from aisim_jax import AisimError

    work = {
        "num_decode_requests": np.ones((4, 2)),
        "sum_decode_kv_tokens": np.ones((3, 2)),
    }
    with pytest.raises(AisimError, match="different shapes"):
        worker().time_ms_batch(work)


def test_counters_of_three_axes_are_refused() -> None:
    from aisim_jax import AisimError

    with pytest.raises(AisimError, match="3 axes"):
        worker().time_ms_batch({"num_decode_requests": np.ones((2, 2, 2))})
