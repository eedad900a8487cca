"""Derivatives of step prices and deployment metrics in hardware rates."""

from __future__ import annotations

import functools

import numpy as np
import pytest


PLACES = {
    "dense": {
        "model": "Qwen/Qwen3-32B-FP8",
        "system": "h200_sxm",
        "backend": "vllm",
        "tp": 4,
    },
    "static_fp8": {
        "model": "nvidia/Llama-3.1-70B-Instruct-FP8",
        "system": "h100_sxm",
        "backend": "trtllm",
        "tp": 4,
        "pp": 2,
    },
    "moe": {
        "model": "Qwen/Qwen3-30B-A3B",
        "system": "b200_sxm",
        "backend": "vllm",
        "attention_dp": 4,
        "moe_tp_size": 1,
        "moe_ep_size": 4,
    },
    "mla": {
        "model": "deepseek-ai/DeepSeek-V3",
        "system": "h200_sxm",
        "backend": "sglang",
        "tp": 8,
        "moe_tp_size": 1,
        "moe_ep_size": 8,
    },
}


@functools.cache
def worker(name: str):
    from aisim_jax import best_available

    return best_available({**PLACES[name], "worker_type": "aggregated"})


def central_difference(function, rates, field: str, step: float = 1e-5):
    """Slope by symmetric relative steps."""
    value = float(getattr(rates, field))
    high = function(rates._replace(**{field: np.float64(value * (1 + step))}))
    low = function(rates._replace(**{field: np.float64(value * (1 - step))}))
    return (np.asarray(high) - np.asarray(low)) / (2 * step * value)


@functools.cache
def steps(name: str):
    """(surface, jitted prices as a function of rates) of four different steps:
    decode inside the grid and beyond it, prefill with a cached prefix, mixed."""
    import jax
    import jax.numpy as jnp

    import aisim_jax

    model = worker(name)
    model.batch.decode_ms(0, 400, 6000)  # tabulates what the held step needs
    surface = model.hardware_surface()

    def prices(rates):
        moved = surface.at(rates)
        return jnp.stack(
            [
                moved.decode_ms(0, 64, 2000),
                moved.decode_ms(0, 400, 6000),
                moved.prefill_ms(0, 2, 3000, 500),
                moved.mixed_ms(0, 4000, 64, 4000, 500, 0),
            ]
        )

    with aisim_jax.precision():
        return surface, jax.jit(prices), jax.jit(jax.jacfwd(prices))


@pytest.mark.parametrize("name", PLACES)
def test_surface_at_the_reference_rates_is_the_surface(name: str) -> None:
    import aisim_jax

    batch = worker(name).batch
    expected = [
        *batch.decode_ms(0, [64, 400], [2000, 6000]),
        *batch.prefill_ms(0, 2, 3000, 500),
        *batch.mixed_ms(0, 4000, 64, 4000, 500, 0),
    ]
    surface, prices, _ = steps(name)
    with aisim_jax.precision():
        here = np.asarray(prices(surface.reference))
    np.testing.assert_allclose(here, expected, rtol=1e-12)


@pytest.mark.parametrize("name", PLACES)
def test_step_gradients_equal_finite_differences(name: str) -> None:
    import aisim_jax

    surface, prices, slopes = steps(name)
    with aisim_jax.precision():
        rates = surface.reference
        total = np.asarray(prices(rates))
        gradient = slopes(rates)
        for field in rates._fields:
            value = float(getattr(rates, field))
            if value == 0:
                continue
            slope = central_difference(prices, rates, field)
            exact = np.asarray(getattr(gradient, field))
            assert (exact <= 0.0).all()
            # 1 % more of a rate, as a share of the step time.
            assert (np.abs(exact - slope) * value <= 1e-6 * total).all()


@pytest.mark.parametrize("name", ["dense", "moe"])
def test_deployment_metrics_improve_with_bandwidth_and_flops(name: str) -> None:
    import jax
    import jax.numpy as jnp

    import aisim_jax
    from aisim_jax.recommend import aggregated_metrics

    model = worker(name)
    reference, metrics = aggregated_metrics(
        model, requests=64, context_tokens=4000, isl=4000, osl=500
    )
    precision_flops = {"dense": "fp8_flops", "moe": "bfloat16_flops"}[name]
    with aisim_jax.precision():
        both = jax.jit(
            lambda rates: jnp.concatenate(
                [metrics(rates).tpot_ms, metrics(rates).tokens_per_s_per_gpu]
            )
        )
        slopes = jax.jit(jax.jacfwd(both))(reference)
        for field in ("mem_bw_bytes_per_s", precision_flops):
            tpot_slope, rate_slope = np.asarray(getattr(slopes, field))
            assert tpot_slope < 0 < rate_slope
            np.testing.assert_allclose(
                [tpot_slope, rate_slope],
                central_difference(both, reference, field),
                rtol=1e-6,
            )


def test_deployment_metrics_equal_the_single_point_estimate() -> None:
    import aisim_jax
    from aisim_jax.models import Layout
    from aisim_jax.recommend import aggregated_metrics, estimate

    model = worker("dense")
    reference, metrics = aggregated_metrics(
        model, requests=64, context_tokens=4000, isl=4000, osl=500
    )
    point = estimate(
        PLACES["dense"]["model"],
        "h200_sxm",
        "vllm",
        layout=Layout(tp=4),
        isl=4000,
        osl=500,
        batch=64,
        ctx_tokens=4000,
    )
    with aisim_jax.precision():
        here = metrics(reference)
        np.testing.assert_allclose(here.tpot_ms[0], point.tpot_ms, rtol=1e-9)
        np.testing.assert_allclose(here.ttft_ms[0], point.ttft_ms, rtol=1e-9)


def test_gradients_need_no_global_flag() -> None:
    """A program with 64 bits off gets full precision inside the scope only."""
    import jax
    import jax.numpy as jnp

    import aisim_jax

    model = worker("dense")
    with aisim_jax.precision():
        value = model.surface().decode_ms(0, 64, 2000)
        assert value.dtype == jnp.float64
    assert not jax.config.values["jax_enable_x64"]
    assert jnp.zeros(1).dtype == jnp.float32
