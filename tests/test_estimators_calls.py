"""Consumers' calls: iterations of one or many ranks, in one call or in a batch."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from goldens import load_golden

from aisim_jax import best_available
from aisim_jax._errors import InvalidInputError, MissingPerfDataError, UnsupportedError
from aisim_jax.estimators import OpLevelModel


GOLDEN = load_golden("onboard/consumer-calls.json")
RECORDED = [*GOLDEN["op_level"], GOLDEN["attention_dp"]]
COUNTERS = (
    "num_prefill_requests",
    "sum_prefill_tokens",
    "var_prefill_length",
    "sum_prefill_kv_tokens",
    "num_decode_requests",
    "sum_decode_kv_tokens",
    "var_decode_kv_tokens",
)
RANKS = GOLDEN["attention_dp"]["config"]
DENSE = {
    "model": "meta-llama/Meta-Llama-3.1-8B",
    "system": "h200_sxm",
    "backend": "vllm",
    "worker_type": "aggregated",
    "tp": 2,
}
# Prefill in this precision was not measured there; decode was.
HALF_SERVED = {
    "model": "deepseek-ai/DeepSeek-V3",
    "system": "h100_sxm",
    "backend": "trtllm",
    "worker_type": "aggregated",
    "tp": 8,
    "moe_tp_size": 1,
    "moe_ep_size": 8,
}
PREFILL = {"num_prefill_requests": 2, "sum_prefill_tokens": 3001}
DECODE = {"num_decode_requests": 17, "sum_decode_kv_tokens": 40_000}


def worker(config: dict[str, Any]) -> OpLevelModel:
    return built(tuple(config.items()))


@cache
def built(items: tuple) -> OpLevelModel:
    return best_available(dict(items))


def columns(iterations: list[list[dict[str, Any]]]) -> dict[str, np.ndarray]:
    """Struct of arrays [n, ranks]."""
    return {
        name: np.array([[rank.get(name, 0) for rank in ranks] for ranks in iterations])
        for name in COUNTERS
    }


@pytest.mark.parametrize(
    "case",
    RECORDED,
    ids=lambda c: (
        f"{c['config']['worker_type']}-tp{c['config']['tp']}-dp{c['config'].get('attention_dp', 1)}"
    ),
)
def test_recorded_calls_are_answered_as_recorded(case: dict[str, Any]) -> None:
    model = worker(case["config"])
    version = case.get("resolved_backend_version", model.tables.version)
    assert model.tables.version == version
    calls = [call for call in case["calls"] if "ranks" in call]
    assert len(calls) >= 5
    for call in calls:
        one = model.estimate_forward_pass_time_ms(call["ranks"])
        detail = model.estimate_forward_pass_detailed(call["ranks"])
        batch = model.time_ms_batch(columns([call["ranks"]]))
        for got in (one, detail["total_ms"], batch.item()):
            assert got == pytest.approx(call["time_ms"], rel=1e-9, abs=0), call["name"]


def test_totals_of_equal_requests_are_iterations_of_one_kind() -> None:
    model = worker(DENSE)
    prefill = {**PREFILL, "sum_prefill_tokens": 3000, "sum_prefill_kv_tokens": 500}
    assert model.predict_prefill_latency_total(2, 3000, 500) == (
        model.estimate_forward_pass_time_ms(prefill)
    )
    assert model.predict_decode_latency_total(17, 40_000) == (
        model.estimate_forward_pass_time_ms(DECODE)
    )


def test_a_total_rounds_the_length_before_the_cached_part() -> None:
    model = worker(DENSE)
    steps = model.batch.prefill_ms(0, 2, [1751, 1750], [250, 250])
    got = [model.predict_prefill_latency_total(2, 3001, kv) for kv in (501, 500)]
    np.testing.assert_allclose(np.array(got, float), steps, rtol=1e-9)


@pytest.mark.parametrize(
    ("call", "counts", "place"),
    [
        ("predict_prefill_latency_total", (-1, 100, 0), "batch"),
        ("predict_prefill_latency_total", (1, -100, 0), "new_tokens"),
        ("predict_prefill_latency_total", (1, 100, -50), "kv_tokens"),
        ("predict_prefill_latency_total", (0, 5, 0), "new_tokens"),
        ("predict_prefill_latency_total", (3, 2, 4), "new_tokens"),
        ("predict_decode_latency_total", (-4, 100), "batch"),
        ("predict_decode_latency_total", (4, -100), "kv_tokens"),
        ("predict_decode_latency_total", (0, 7), "batch"),
        ("decode_step_ms", (-1, 100), "requests"),
        ("decode_step_ms", (1, -5), "kv_len"),
        ("mixed_step_parts_ms", (100, -3, 50, 20), "requests"),
        ("mixed_step_parts_ms", (100, 3, 0, 20), "isl"),
    ],
)
def test_impossible_counts_are_refused(
    call: str, counts: tuple[int, ...], place: str
) -> None:
    with pytest.raises(InvalidInputError, match=f"^{place}: ") as error:
        getattr(worker(DENSE), call)(*counts)
    assert_one_sentence(error.value)


def test_an_iteration_takes_as_long_as_its_slowest_rank() -> None:
    model = worker(RANKS)
    ranks = [PREFILL, {**PREFILL, **DECODE}, {}, DECODE]
    alone = [model.estimate_forward_pass_time_ms([rank]) for rank in ranks]
    assert alone[2] == 0.0
    slowest = max(ms for ms in alone if ms is not None)
    assert model.estimate_forward_pass_time_ms(ranks) == slowest
    detail = model.estimate_forward_pass_detailed(ranks)
    assert detail["rank"] == alone.index(slowest)
    batch = model.time_ms_batch(columns([ranks, ranks[::-1], [{}] * 4]))
    np.testing.assert_allclose(batch, [slowest, slowest, 0.0], rtol=1e-9)


def test_no_work_takes_no_time() -> None:
    model = worker(DENSE)
    assert model.estimate_forward_pass_time_ms([]) == 0.0
    assert model.estimate_forward_pass_time_ms([{}]) == 0.0
    assert model.estimate_forward_pass_detailed([])["total_ms"] == 0.0
    assert model.predict_prefill_latency_total(0, 0, 0) == 0.0
    assert model.predict_prefill_latency_total(2, 0, 100) == 0.0
    assert model.predict_decode_latency_total(0, 0) == 0.0
    only_cached = {"num_prefill_requests": 3, "sum_prefill_kv_tokens": 700}
    assert model.estimate_forward_pass_time_ms(only_cached) == 0.0
    empty = model.time_ms_batch({name: np.zeros((3, 2)) for name in COUNTERS})
    assert empty.tolist() == [0.0, 0.0, 0.0]
    assert model.time_ms_batch({COUNTERS[0]: np.zeros((0, 1))}).shape == (0,)


def test_variances_queues_and_wall_time_change_nothing() -> None:
    model = worker(DENSE)
    plain = model.estimate_forward_pass_time_ms([{**PREFILL, **DECODE}])
    work = {**PREFILL, **DECODE, "var_prefill_length": 9.5, "var_decode_kv_tokens": 7}
    record = {
        "version": 1,
        "dp_rank": 0,
        "wall_time": 12.5,
        "scheduled_requests": work,
        "queued_requests": {"num_prefill_requests": 99},
    }
    assert model.estimate_forward_pass_time_ms(record) == plain
    assert model.time_ms_batch(columns([[work]])).item() == pytest.approx(
        plain, rel=1e-9
    )


def test_decode_rows_without_cached_tokens_have_a_price() -> None:
    for config in (DENSE, {**HALF_SERVED, "system": "h200_sxm", "backend": "sglang"}):
        model = worker(config)
        ranks = {"num_decode_requests": 5, "sum_decode_kv_tokens": 3}
        one = model.estimate_forward_pass_time_ms(ranks)
        assert one is not None and one > 0
        many = model.time_ms_batch(columns([[ranks]] * 100))
        np.testing.assert_allclose(many, one, rtol=1e-9)


def test_nan_and_none_mean_that_no_table_answers() -> None:
    model = worker(HALF_SERVED)
    assert model.predict_prefill_latency_total(1, 100, 0) is None
    assert model.estimate_forward_pass_time_ms([DECODE, PREFILL]) is None
    decode = model.estimate_forward_pass_time_ms([DECODE])
    assert decode is not None and decode > 0
    with pytest.raises(MissingPerfDataError, match="h100_sxm trtllm"):
        model.estimate_forward_pass_detailed([PREFILL])
    batch = model.time_ms_batch(columns([[DECODE, {}], [DECODE, PREFILL], [{}, {}]]))
    np.testing.assert_allclose(batch, np.array([decode, np.nan, 0.0]), rtol=1e-9)


def test_fewer_new_tokens_than_requests_have_no_price() -> None:
    model = worker(DENSE)
    ranks = {"num_prefill_requests": 5, "sum_prefill_tokens": 3}
    assert model.estimate_forward_pass_time_ms(ranks) is None
    assert np.isnan(model.time_ms_batch(columns([[ranks]]))).all()


def test_the_struct_of_arrays_comes_in_any_form() -> None:
    model = worker(DENSE)
    ranks = [[{**PREFILL, **DECODE}], [DECODE], [PREFILL]]
    arrays = columns(ranks)
    each = [model.estimate_forward_pass_time_ms(rank) for rank in ranks]
    expected = np.array(each, float)
    flat = {name: values[:, 0] for name, values in arrays.items()}
    few = {n: v for n, v in arrays.items() if not n.startswith("var_")}
    structured = np.zeros((3, 1), [(name, np.int64) for name in COUNTERS])
    for name, values in arrays.items():
        structured[name] = values
    for form in (arrays, flat, few, structured, SimpleNamespace(**arrays)):
        np.testing.assert_allclose(model.time_ms_batch(form), expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("iteration", "place"),
    [
        ("text", "one record or a list"),
        (7, "one record or a list"),
        ([[]], r"\[0\]"),
        ([{}, 3], r"\[1\]"),
        ({"version": 7}, "version"),
        ({"scheduled_requests": [1]}, "scheduled_requests"),
        ({"num_decode_requests": -1}, "num_decode_requests"),
        ({"num_decode_requests": 1.5}, "num_decode_requests"),
        ({"num_decode_requests": float("nan")}, "num_decode_requests"),
        ({"num_decode_requests": True}, "num_decode_requests"),
        ({"sum_prefill_tokens": "9"}, "sum_prefill_tokens"),
        ({"sum_prefill_tokens": None}, "sum_prefill_tokens"),
        ([{}, {"sum_decode_kv_tokens": 1 << 40}], r"\[1\].sum_decode_kv_tokens"),
    ],
)
def test_malformed_iterations_name_the_field(iteration: Any, place: str) -> None:
    model = worker(DENSE)
    for call in (
        model.estimate_forward_pass_time_ms,
        model.estimate_forward_pass_detailed,
    ):
        with pytest.raises(InvalidInputError, match=place) as error:
            call(iteration)
        assert_one_sentence(error.value)


@pytest.mark.parametrize(
    ("scheduled", "place"),
    [
        ({}, "no counter"),
        ({"num_requests": np.zeros(2)}, "num_requests"),
        ({COUNTERS[0]: np.array([-1.0])}, COUNTERS[0]),
        ({COUNTERS[0]: np.array([np.nan])}, COUNTERS[0]),
        ({COUNTERS[5]: np.array([np.inf])}, COUNTERS[5]),
    ],
)
def test_malformed_arrays_name_the_counter(scheduled: Any, place: str) -> None:
    with pytest.raises(InvalidInputError, match=place) as error:
        worker(DENSE).time_ms_batch(scheduled)
    assert_one_sentence(error.value)


def test_a_prefix_without_new_tokens_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="prefix 100"):
        worker(DENSE).prefill_operations(1, 100, 100)


def test_correction_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="correction"):
        worker(DENSE).tune_with_fpms([])


def assert_one_sentence(error: Exception) -> None:
    assert str(error).strip() and "\n" not in str(error)
