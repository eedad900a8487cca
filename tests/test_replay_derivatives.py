"""A schedule timed again: the run's own figures, and their exact derivatives."""

from __future__ import annotations

import functools
from dataclasses import replace

import jax
import numpy as np
import pytest
from replay_prices import prediction

from aisim_jax import precision
from aisim_jax._errors import InvalidInputError, UnsupportedError
from aisim_jax.config import load_prediction
from aisim_jax.estimators import hardware_surface
from aisim_jax.replay import (
    Deployment,
    FixedPrice,
    Role,
    SurfacePrice,
    Transfer,
    fixed_steps,
    polynomial_steps,
    replay_scenarios,
    resolve_deployment,
    retimed,
    role_price,
    schedule_metrics,
    summary,
)
from aisim_jax.traffic import Tokenizer, Workload


REQUESTS = 24
PREFILL_MS, DECODE_MS = 10.0, 3.1
metrics = jax.jit(schedule_metrics)


def traffic(in_flight: int | None, *, turns: int = 1, gap_ms: float = 37.3) -> Workload:
    """Prompts and outputs of many lengths."""
    index = np.arange(REQUESTS)
    turn = index % turns
    isl = 20 + index * 13 % 90 + turn * 100
    arrival_ms = np.where(turn == 0, (index // turns) ** 1.1 * gap_ms, np.nan)
    return Workload(
        arrival_ms=arrival_ms,
        isl_tokens=isl.astype(np.int32),
        osl_tokens=(1 + index * 7 % 19).astype(np.int32),
        session=(index // turns).astype(np.int32),
        turn=turn.astype(np.int32),
        delay_ms=np.where(turn > 0, 5.25, 0.0),
        max_in_flight=in_flight,
    )


def role(**settings) -> Role:
    """Limits that bind: chunks, slots, and now and then the pool."""
    plain = {
        "workers": 1,
        "ranks": 1,
        "max_batched_tokens": 64,
        "max_sequences": 4,
        "block_size": 16,
        "num_blocks": 40,
        "steps": fixed_steps(PREFILL_MS, DECODE_MS),
        "prefix_caching": False,
    }
    return Role(**{**plain, **settings})


POLYNOMIAL = polynomial_steps(40 * 16)
# name: (requests in flight or None, turns, policy, settings of the role)
AGGREGATED = {
    "closed loop": (5, 1, "vllm", {}),
    "closed loop, two workers": (5, 1, "vllm", {"workers": 2}),
    "arrivals": (None, 1, "vllm", {}),
    "arrivals, two workers": (None, 1, "trtllm", {"workers": 2}),
    "closed loop, polynomial": (5, 1, "vllm", {"steps": POLYNOMIAL}),
    "arrivals, polynomial": (None, 1, "vllm", {"steps": POLYNOMIAL}),
    "ranks": (9, 1, "vllm", {"ranks": 2, "steps": POLYNOMIAL}),
    "sessions in a closed loop": (5, 3, "vllm", {"workers": 2}),
    "sessions that arrive": (None, 3, "vllm", {"workers": 2}),
    "sglang": (5, 1, "sglang", {"block_size": 1, "num_blocks": 640}),
}


def aggregated(name: str):
    """(workload, deployment) of a named case."""
    in_flight, turns, policy, settings = AGGREGATED[name]
    return traffic(in_flight, turns=turns), Deployment(policy, role(**settings))


def disaggregated(in_flight: int | None):
    """A prefill and a decode pool with transfers that take time."""
    prefill = role(max_sequences=1, num_blocks=30)
    transfer = Transfer(bytes_per_token=1e5, bandwidth_gb_per_s=5.0, full_prompt=True)
    return traffic(in_flight), Deployment("vllm", role(workers=2), prefill, transfer)


def run(scenario):
    """(replayed, schedule) of a scenario."""
    (replayed,) = replay_scenarios([scenario], log=True)
    return replayed, retimed(replayed, *scenario)


def passes_of(replayed):
    assert replayed.passes is not None
    return replayed.passes()


def same_as_the_run(found, scenario, replayed) -> None:
    """Every figure within 1 ns a pass."""
    report = summary(replayed, *scenario)
    passes = int(passes_of(replayed).passes.sum())
    off_ms = 1e-6 * passes + 1e-9 * report["duration_ms"]
    for key, value in found.items():
        if key.endswith("_ms"):
            assert float(value) == pytest.approx(report[key], abs=off_ms), key
        else:
            off = off_ms / report["duration_ms"]
            assert float(value) == pytest.approx(report[key], rel=off), key


@pytest.mark.parametrize("name", AGGREGATED)
def test_a_schedule_at_its_own_prices_is_the_run(name: str) -> None:
    scenario = aggregated(name)
    replayed, schedule = run(scenario)
    with precision():
        found = metrics(schedule, role_price(scenario[1].decode))
        same_as_the_run(found, scenario, replayed)


@pytest.mark.parametrize("in_flight", [None, 5])
def test_a_disaggregated_schedule_at_its_own_prices_is_the_run(in_flight) -> None:
    scenario = disaggregated(in_flight)
    replayed, schedule = run(scenario)
    with precision():
        found = metrics(schedule, role_price(scenario[1].decode))
        same_as_the_run(found, scenario, replayed)


def close(slope: float, expected: float, scale: float, rel: float = 1e-6) -> None:
    assert slope == pytest.approx(expected, rel=rel, abs=rel * scale)


@pytest.mark.parametrize("name", ["closed loop", "arrivals, polynomial", "ranks"])
def test_gradients_equal_differences_of_the_retimed_schedule(name: str) -> None:
    scenario = aggregated(name)
    _, schedule = run(scenario)
    with precision():
        price = role_price(scenario[1].decode)
        leaves, tree = jax.tree.flatten(price)

        def of(leaves):
            return metrics(schedule, jax.tree.unflatten(tree, leaves))

        here = {key: float(value) for key, value in of(leaves).items()}
        for key in here:
            slopes = jax.grad(lambda leaves, key=key: of(leaves)[key])(leaves)
            for i, leaf in enumerate(leaves):
                for j in np.ndindex(leaf.shape):
                    step = 1e-5 * abs(leaf[j])
                    sides = []
                    for sign in (1, -1):
                        moved = [np.array(one) for one in leaves]
                        moved[i][j] += sign * step
                        sides.append(float(of(moved)[key]))
                    expected = (sides[0] - sides[1]) / (2 * step)
                    # Per relative change of the parameter, as a share of the figure.
                    scale = abs(here[key] / leaf[j])
                    close(float(slopes[i][j]), expected, scale)


def replayed_at(scenario, prefill_ms: float, decode_ms: float):
    """The scenario replayed in full at other constant prices."""
    workload, deployment = scenario
    steps = fixed_steps(prefill_ms, decode_ms)
    prefill = deployment.prefill
    moved = replace(
        deployment,
        decode=replace(deployment.decode, steps=steps),
        prefill=None if prefill is None else replace(prefill, steps=steps),
    )
    (found,) = replay_scenarios([(workload, moved)], log=True)
    return found, summary(found, workload, moved)


@pytest.mark.parametrize(
    "scenario",
    [
        aggregated("closed loop"),
        aggregated("closed loop, two workers"),
        aggregated("arrivals, two workers"),
        disaggregated(5),
    ],
    ids=["closed loop", "two workers", "arrivals", "disaggregated"],
)
def test_gradients_equal_differences_of_full_replays(scenario) -> None:
    replayed, schedule = run(scenario)
    step_ms = 1e-3
    with precision():
        price = FixedPrice(np.array(PREFILL_MS), np.array(DECODE_MS))
        slopes = jax.jacrev(lambda price: metrics(schedule, price))(price)
    for name in ("prefill_ms", "decode_ms"):
        reports = []
        for sign in (1, -1):
            times = {"prefill_ms": PREFILL_MS, "decode_ms": DECODE_MS}
            times[name] += sign * step_ms
            moved, report = replayed_at(scenario, **times)
            for field in ("passes", "prefill_requests", "decode_requests"):
                np.testing.assert_array_equal(
                    getattr(passes_of(moved), field),
                    getattr(passes_of(replayed), field),
                )
            reports.append(report)
        for key, slope in slopes.items():
            expected = (reports[0][key] - reports[1][key]) / (2 * step_ms)
            close(float(getattr(slope, name)), expected, abs(reports[0][key]) / 10)


def test_mean_ttft_falls_with_memory_bandwidth() -> None:
    """Through the compiled surface: exact slope in a hardware rate."""
    scenario = op_level()
    deployment = scenario[1]
    replayed, schedule = run(scenario)
    prices = deployment.decode.prices
    assert prices is not None
    surface = hardware_surface(prices.batch, tokens=512, rows=32, requests=32)
    with precision():
        found = metrics(schedule, role_price(deployment.decode))
        same_as_the_run(found, scenario, replayed)

        @jax.jit
        def both(rates):
            price = SurfacePrice(surface.at(rates), prices.lane)
            found = schedule_metrics(schedule, price)
            return found["mean_ttft_ms"], found["request_throughput_rps"]

        rates = surface.reference
        np.testing.assert_allclose(
            both(rates), [found["mean_ttft_ms"], found["request_throughput_rps"]], 1e-9
        )
        slopes = [s.mem_bw_bytes_per_s for s in jax.jacfwd(both)(rates)]
        bandwidth = float(rates.mem_bw_bytes_per_s)
        sides = [
            both(rates._replace(mem_bw_bytes_per_s=np.float64(bandwidth * (1 + step))))
            for step in (1e-5, -1e-5)
        ]
        for slope, high, low in zip(slopes, *sides, strict=True):
            expected = (float(high) - float(low)) / (2e-5 * bandwidth)
            assert float(slope) == pytest.approx(expected, rel=1e-6)
        assert slopes[0] < 0 < slopes[1]


@functools.cache
def op_level():
    """Qwen3-32B-FP8 on two H200 in a small closed loop."""
    config = load_prediction(prediction({"parallelism": {"tensor": 2}}))
    deployment = resolve_deployment(config).deployment
    decode = replace(deployment.decode, max_batched_tokens=512, prefix_caching=False)
    return traffic(5), replace(deployment, decode=decode)


def test_what_cannot_be_timed_again_is_refused() -> None:
    workload, deployment = aggregated("closed loop")
    (unlogged,) = replay_scenarios([(workload, deployment)], log=False)
    with pytest.raises(InvalidInputError, match="log=True"):
        retimed(unlogged, workload, deployment)
    replayed, _ = run((workload, deployment))
    staged = replace(workload, tokenizer=Tokenizer(1, 1.0, 0.0))
    with pytest.raises(UnsupportedError, match="tokenization"):
        retimed(replayed, staged, deployment)
    _, measured = op_level()
    assert measured.decode.prices is not None
    apart = replace(measured.decode.prices, apart=True)
    with pytest.raises(UnsupportedError, match="per_request"):
        retimed(
            replayed,
            workload,
            replace(measured, decode=replace(measured.decode, prices=apart)),
        )
