"""Prices that replay engines read: equal to the estimator's, and never invented."""

from __future__ import annotations

import functools
from dataclasses import replace

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.replay_oracle import replay
from replay_golden import differences, load_case, scenario
from replay_prices import ScalarTiming, prediction

from aisim_jax import precision
from aisim_jax.config import load_prediction
from aisim_jax.kernels.replay import (
    DecodeTable,
    OpLevelSteps,
    PrefillTable,
    Steps,
    SurfaceDecode,
    SurfacePrefill,
)
from aisim_jax.replay import Role, resolve_deployment, with_prices
from aisim_jax.replay._op_level_prices import OpLevelPrices
from aisim_jax.replay._reach import Reach
from aisim_jax.traffic import Workload


DENSE = prediction({"parallelism": {"tensor": 2}})
LATENT = prediction(
    {"parallelism": {"tensor": 8, "moe_tensor": 8}},
    model="deepseek-ai/DeepSeek-V3",
    backend="sglang",
    nextn=1,
    nextn_accepted=0.5,
)
# 90 prompts of 2 000 tokens and 100 sequences of 5 000 lie beyond the measured grids.
FEW = Reach(8, 200, 260, 4, 300, 1000, 2**40, 1000)
MANY = Reach(100, 4000, 5000, 90, 2000, 4096, 2**40, 1000)
SHARED = Reach(100, 4000, 5000, 4, 300, 1000, 2**40, 2**30)


@functools.cache
def role_of(latent: bool) -> Role:
    config = load_prediction(LATENT if latent else DENSE)
    return resolve_deployment(config).deployment.decode


@functools.cache
def priced(latent: bool, reach: Reach) -> OpLevelSteps:
    prices = role_of(latent).prices
    assert prices is not None
    return OpLevelPrices(prices.batch, prices.lane).steps(reach)


@functools.cache
def scalar(latent: bool) -> ScalarTiming:
    return ScalarTiming(role_of(latent))


@jax.jit
def prefill_ns(steps: OpLevelSteps, n, isl, prefix):
    return steps.prefill_ns(n, isl, prefix)


@jax.jit
def decode_ns(steps: OpLevelSteps, n, context):
    return steps.decode_ns(n, context)


@jax.jit
def elapsed_ns(steps: OpLevelSteps, n, context, passes):
    return steps.decode_elapsed_ns(n, context, passes)


@jax.jit
def each_decode_ns(steps: OpLevelSteps, lengths, mask, passes):
    return steps.decode_each_elapsed_ns(lengths, mask, passes)


@jax.jit
def each_prefill_ns(steps: OpLevelSteps, isl, prefix, mask):
    return steps.prefill_each_ns(isl, prefix, mask)


def whole(function, steps: Steps, *counts) -> np.ndarray:
    with precision():
        return np.asarray(function(steps, *(np.asarray(c) for c in counts)))


def rows(*columns: np.ndarray) -> list[tuple[int, ...]]:
    return list(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.parametrize(
    ("reach", "prefill", "decode"),
    [
        (FEW, PrefillTable, DecodeTable),
        (MANY, SurfacePrefill, SurfaceDecode),
        (SHARED, PrefillTable, DecodeTable),
    ],
)
def test_small_or_shared_regions_are_tabulated_and_others_priced_directly(
    reach, prefill, decode
):
    steps = priced(False, reach)
    assert isinstance(steps.prefill, prefill)
    assert isinstance(steps.decode, decode)


@pytest.mark.parametrize("latent", [False, True])
@pytest.mark.parametrize("reach", [FEW, MANY, SHARED])
def test_every_price_within_reach_equals_the_scalar_estimator_to_the_nanosecond(
    latent, reach
):
    draw = np.random.default_rng(0)
    steps, one = priced(latent, reach), scalar(latent)
    n = draw.integers(1, reach.requests + 1, 64)
    mean = draw.integers(reach.shortest, reach.longest + 1, 64)
    found = whole(decode_ns, steps, n, n * mean + draw.integers(0, n))
    assert found.tolist() == [one.decode_ns(*q) for q in rows(n, mean)]
    n = draw.integers(1, reach.prompts + 1, 64)
    isl = draw.integers(1, reach.prompt + 1, 64)
    prefix = draw.integers(np.maximum(isl - reach.new_tokens // n, 0), isl)
    found = whole(prefill_ns, steps, n, isl, prefix)
    expected = [one.prefill_ns(*q) for q in rows(n, isl, prefix)]
    assert found.tolist() == expected


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 8), mean=st.integers(200, 260), extra=st.integers(0, 7))
def test_a_decode_pass_is_priced_at_the_whole_mean_length(n, mean, extra):
    context = n * mean + extra % n
    found = whole(decode_ns, priced(False, FEW), n, context)
    assert found == scalar(False).decode_ns(n, mean)


@pytest.mark.parametrize("reach", [FEW, MANY])
def test_equal_passes_take_the_sum_of_their_single_times(reach):
    steps = priced(False, reach)
    start = reach.shortest + 3
    found = whole(elapsed_ns, steps, 3, 3 * start + 2, np.arange(1, 9, dtype=np.int32))
    single = [scalar(False).decode_ns(3, start + k) for k in range(8)]
    assert found.tolist() == np.cumsum(single).tolist()


def test_what_no_table_covers_is_negative_and_empty_work_is_free():
    steps = priced(False, FEW)
    outside = [(9, 9 * 210), (3, 3 * 199), (3, 3 * 300)]
    for n, context in outside:
        assert whole(decode_ns, steps, n, context) < 0
    assert whole(prefill_ns, steps, 5, 100, 0) < 0
    assert whole(prefill_ns, steps, 2, 301, 300) < 0
    assert whole(decode_ns, steps, 0, 0) == 0
    assert whole(prefill_ns, steps, 0, 0, 0) == 0
    assert whole(prefill_ns, steps, 2, 100, 100) == 0


def test_untabulated_cells_beyond_the_grid_stop_the_run_instead_of_guessing():
    role = role_of(False)
    assert whole(decode_ns, role.steps, 3000, 3000 * 5000) < 0
    assert whole(decode_ns, role.steps, 4, 4 * 1000) > 0


@pytest.mark.parametrize("reach", [FEW, MANY])
def test_requests_priced_apart_average_their_own_lengths(reach):
    steps = priced(False, reach)
    first = reach.shortest
    lengths = np.array([first, first + 5, 1, first + 40], np.int32)
    mask = np.array([True, True, False, True])
    found = int(whole(each_decode_ns, steps, lengths, mask, np.int32(4)))
    single = [
        scalar(False).decode_ns(3, length + k)
        for length in (first, first + 5, first + 40)
        for k in range(4)
    ]
    assert abs(found - sum(single) / 3) <= 0.5


@pytest.mark.parametrize("reach", [FEW, MANY])
def test_equal_requests_priced_apart_cost_what_their_mean_does(reach):
    steps = priced(False, reach)
    first, mask = reach.shortest, np.array([True, False, True, True])
    lengths = np.full(4, first, np.int32)
    apart = whole(each_decode_ns, steps, lengths, mask, np.int32(1))
    assert apart == whole(decode_ns, steps, 3, 3 * first)
    isl, prefix = np.full(4, 90, np.int32), np.full(4, 30, np.int32)
    apart = whole(each_prefill_ns, steps, isl, prefix, mask)
    assert abs(apart - whole(prefill_ns, steps, 3, 90, 30)) <= 1


def workload(count: int, isl: int, osl: int, in_flight: int | None) -> Workload:
    return Workload(
        arrival_ms=np.zeros(count),
        isl_tokens=np.full(count, isl),
        osl_tokens=np.full(count, osl),
        session=np.arange(count),
        turn=np.zeros(count, np.int64),
        delay_ms=np.zeros(count),
        max_in_flight=in_flight,
    )


def test_scenarios_of_one_layout_share_one_set_of_prices():
    config = load_prediction(DENSE)
    deployment = resolve_deployment(config).deployment
    wide = replace(
        deployment, decode=replace(deployment.decode, max_sequences=3, workers=2)
    )
    scenarios = [
        (workload(20, 100, 10, 2), deployment),
        (workload(30, 120, 8, 9), wide),
    ]
    (_, one), (_, two) = with_prices(scenarios)
    assert one.decode.steps is two.decode.steps
    again = with_prices(scenarios[:1])
    assert again[0][1].decode.steps is one.decode.steps
    for n, context in ((2, 2 * 100), (3, 3 * 127)):
        found = whole(decode_ns, one.decode.steps, n, context)
        assert found == scalar(False).decode_ns(n, context // n)


@pytest.mark.parametrize("name", ["l01_oplevel", "l02_oplevel_disagg"])
def test_recorded_runs_with_measured_prices_are_reproduced(name):
    case = load_case(name)
    deployment = resolve_deployment(load_prediction(case["config"])).deployment
    inputs, names = scenario(case)
    decode = replace(inputs.decode, timing=ScalarTiming(deployment.decode))
    prefill = inputs.prefill
    if prefill is not None:
        assert deployment.prefill is not None
        prefill = replace(prefill, timing=ScalarTiming(deployment.prefill))
    outcome = replay(replace(inputs, decode=decode, prefill=prefill))
    assert differences(case, outcome, names) == []
