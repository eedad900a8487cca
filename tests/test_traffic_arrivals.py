"""Arrivals, lengths and sessions that are made."""

from __future__ import annotations

import numpy as np
import pytest
import replay_golden
from oracle.replay_traffic import ChaCha12

from aisim_jax._errors import InvalidInputError
from aisim_jax.traffic import (
    SessionHistory,
    Workload,
    constant_rate_ms,
    gamma_ms,
    kv_fraction_concurrency,
    poisson_ms,
    sessions,
    synthetic,
    with_arrivals,
    workload_statistics,
)
from aisim_jax.traffic._chacha import below, uniforms, words


def workload_of(config: dict) -> Workload:
    """The synthetic traffic of a recorded case."""
    source, load, stop = config["source"], config["load"], config["stop"]
    count = stop.get("requests", stop.get("sessions"))
    rate = load.get("requests_per_second", load.get("sessions_per_second"))
    arrivals = None
    if load["type"] == "poisson":
        arrivals = poisson_ms(count, rate, load.get("seed", 42))
    elif load["type"] == "constant_rate":
        arrivals = constant_rate_ms(count, rate)
    loop = load["concurrency"] if load["type"] == "concurrency" else None
    if source["type"] == "synthetic":
        return synthetic(
            count,
            isl_tokens=source["input_tokens"],
            osl_tokens=source["output_tokens"],
            cached_prefix_tokens=source.get("cached_prefix_tokens", 0),
            arrival_ms=arrivals,
            max_in_flight=loop,
        )
    shape = source["session"]
    return sessions(
        count,
        block_size=16,
        turns=shape["turns"],
        new_isl_tokens=source["new_input_tokens_per_turn"],
        osl_tokens=source["output_tokens_per_turn"],
        shared_prefix_ratio=shape["shared_prefix_ratio"],
        prefix_groups=shape["prefix_groups"],
        delay_ms=shape["inter_turn_delay_ms"],
        arrival_ms=arrivals,
        max_in_flight=loop,
    )


@pytest.mark.parametrize("name", replay_golden.case_names())
def test_synthetic_traffic_is_that_of_the_recorded_case(name):
    case = replay_golden.load_case(name)
    config = case["config"]["traffic"]
    if config["source"]["type"] == "trace" or "error" in case:
        return
    workload = workload_of(config)
    records = {(r["session"], r["turn"]): r for r in replay_golden.records(case)}
    assert len(records) == workload.size
    for row in range(workload.size):
        turn = int(workload.turn[row])
        record = records[f"session_{workload.session[row]}", turn]
        assert workload.isl_tokens[row] == record["input_tokens"]
        assert workload.osl_tokens[row] == record["requested_output_tokens"]
        if turn == 0 and workload.max_in_flight is None:
            assert workload.arrival_ms[row] == record["arrival_ms"]


@pytest.mark.parametrize("seed", [0, 7, 42, 2**64 - 1])
def test_words_are_those_of_the_plain_generator(seed):
    plain = ChaCha12(seed)
    assert words(seed, 100).tolist() == [plain.u32() for _ in range(100)]
    plain = ChaCha12(seed)
    assert uniforms(seed, 33).tolist() == [plain.uniform() for _ in range(33)]


def test_groups_are_drawn_as_the_reference_draws_them():
    # Seen from its prefix reuse with a cache that holds one session.
    assert below(2, 0, 16) == [1, 1, 1, 1, 1, 0, 1, 1, 1, 0, 0, 1, 0, 0, 1, 1]


def test_a_group_draw_takes_another_word_where_the_low_word_could_carry():
    # First sessions of 20 000 that hit an earlier group's block in the reference.
    seen: set[int] = set()
    hits = []
    for session, group in enumerate(below(2**20 + 12345, 0, 4300)):
        if group in seen:
            hits.append(session)
        seen.add(group)
    assert hits == [1383, 3160, 3458, 3479, 3560, 3873, 4184, 4217]


def test_constant_gaps_are_summed_one_by_one():
    arrivals = constant_rate_ms(4, per_second=7.0)
    gap = 1000.0 / 7.0
    assert arrivals.tolist() == [0.0, gap, gap + gap, gap + gap + gap]
    assert constant_rate_ms(0, per_second=7.0).size == 0


def test_gamma_gaps_have_the_mean_and_the_variation_asked_for():
    gaps = np.diff(gamma_ms(200_001, per_second=50.0, burstiness=0.25, seed=3))
    assert gaps.mean() == pytest.approx(20.0, rel=0.02)
    assert gaps.std() / gaps.mean() == pytest.approx(2.0, rel=0.02)


def test_equal_seeds_give_equal_loads_and_others_differ():
    for draw in (poisson_ms, gamma_ms):
        assert np.array_equal(draw(50, 3.0, seed=9), draw(50, 3.0, seed=9))
        assert not np.array_equal(draw(50, 3.0, seed=9), draw(50, 3.0, seed=10))
    lengths = [
        synthetic(50, random_range_ratio=0.5, lengths_seed=s).isl_tokens
        for s in (1, 1, 2)
    ]
    assert np.array_equal(lengths[0], lengths[1])
    assert not np.array_equal(lengths[0], lengths[2])


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
def test_a_rate_that_is_no_rate_is_refused(rate):
    with pytest.raises(InvalidInputError, match="per_second"):
        poisson_ms(3, rate)


def test_drawn_lengths_cover_the_range_and_nothing_else():
    workload = synthetic(
        5000, isl_tokens=9, osl_tokens=1, random_range_ratio=0.5, lengths_seed=1
    )
    assert np.unique(workload.isl_tokens).tolist() == [4, 5, 6, 7, 8, 9]
    assert np.unique(workload.osl_tokens).tolist() == [1]


@pytest.mark.parametrize(
    ("new", "ratio", "shared"),
    [(40, 0.5, 32), (40, 1.0, 40), (56, 0.5, 32), (88, 0.25, 32), (24, 0.25, 16)],
)
def test_shared_blocks_are_rounded_from_all_blocks_of_the_first_prompt(
    new, ratio, shared
):
    workload = sessions(
        2, block_size=16, new_isl_tokens=new, shared_prefix_ratio=ratio, prefix_groups=1
    )
    assert isinstance(workload.contents, SessionHistory)
    assert workload.contents.shared_tokens == shared


def test_a_session_has_one_arrival_and_waits_between_turns():
    workload = sessions(
        2, block_size=16, turns=3, delay_ms=25.0, arrival_ms=np.array([0.0, 5.0])
    )
    assert workload.turn.tolist() == [0, 1, 2, 0, 1, 2]
    assert workload.delay_ms.tolist() == [0.0, 25.0, 25.0] * 2
    assert workload.arrival_ms[[0, 3]].tolist() == [0.0, 5.0]
    assert np.isnan(workload.arrival_ms[[1, 2, 4, 5]]).all()


def test_the_same_requests_can_arrive_anew():
    workload = with_arrivals(synthetic(3, max_in_flight=2), np.array([0.0, 4.0, 9.0]))
    assert workload.max_in_flight is None
    assert workload.arrival_ms.tolist() == [0.0, 4.0, 9.0]
    with pytest.raises(InvalidInputError, match="2 arrivals for 3 sessions"):
        with_arrivals(workload, np.zeros(2))


def test_a_share_of_the_cache_is_a_number_of_requests():
    assert kv_fraction_concurrency(0.5, 100_000, 1000, 501) == 40
    assert kv_fraction_concurrency(0.001, 100_000, 1000, 500) == 1
    assert kv_fraction_concurrency(1.0, 1000, 1000, 500) == 0


def test_statistics_of_a_burst_of_twins():
    workload = synthetic(
        3,
        isl_tokens=32,
        osl_tokens=4,
        cached_prefix_tokens=16,
        arrival_ms=np.array([0.0, 0.0, 10.0]),
    )
    told = workload_statistics(workload, block_size=16)
    assert told.sharing_an_instant == 2
    assert (told.mean_gap_ms, told.gap_cv) == (5.0, 1.0)
    assert told.reuse_bound == pytest.approx(1 / 3)
    assert np.isnan(workload_statistics(synthetic(2, max_in_flight=1)).gap_cv)


def test_generated_blocks_of_a_session_count_as_reusable():
    told = workload_statistics(
        sessions(1, block_size=16, turns=2, new_isl_tokens=16, osl_tokens=16), 16
    )
    assert told.reuse_bound == pytest.approx(32 / (16 + 48))
