"""Requests that can never be served are named before the run, each with its reason."""

from __future__ import annotations

import numpy as np


def role(**changes):
    from aisim_jax.kernels.replay import FixedSteps
    from aisim_jax.replay import Role

    zero = np.zeros((), np.int32)
    settings = {
        "workers": 1,
        "ranks": 1,
        "max_batched_tokens": 512,
        "max_sequences": 8,
        "block_size": 16,
        "num_blocks": 10,
        "steps": FixedSteps(zero, zero),
    }
    return Role(**(settings | changes))


def workload(isl, osl, **changes):
    from aisim_jax.traffic import Workload

    size = len(isl)
    settings = {
        "arrival_ms": np.arange(size, dtype=float),
        "isl_tokens": np.array(isl),
        "osl_tokens": np.array(osl),
        "session": np.arange(size),
        "turn": np.zeros(size, np.int64),
        "delay_ms": np.zeros(size),
    }
    return Workload(**(settings | changes))


def reasons(policy, isl, osl, prefill=None, **changes):
    from aisim_jax.replay import Deployment
    from aisim_jax.replay._admissible import admissible

    found = admissible(workload(isl, osl), Deployment(policy, role(**changes), prefill))
    names = [str(one) for one in found.reason]
    return names, found.stalls.tolist(), found.workload.osl_tokens.tolist()


def test_vllm_stores_all_tokens_but_the_last() -> None:
    # 160 tokens: 100 + 61 store 160, one more never fits.
    assert reasons("vllm", [100, 100], [61, 62])[:2] == (["0", "3"], [False, True])


def test_prompts_that_the_engine_rejects_itself_do_not_stall() -> None:
    names, stalls, _ = reasons("vllm", [161, 128, 100], [1, 1, 1], max_model_len=128)
    assert (names, stalls) == (["1", "1", "0"], [False, False, False])
    assert reasons("vllm", [161], [1])[:2] == (["2"], [False])


def test_the_context_limit_cuts_outputs_before_the_pool_is_asked() -> None:
    assert reasons("vllm", [100], [100], max_model_len=150) == (["0"], [False], [50])


def test_trtllm_cuts_outputs_to_the_pool() -> None:
    assert reasons("trtllm", [100, 160], [100, 5]) == (
        ["0", "3"],
        [False, False],
        [60, 5],
    )


def test_a_prompt_above_the_budget_stalls_without_chunked_prefill() -> None:
    names, stalls, _ = reasons(
        "vllm", [65, 64], [1, 1], max_batched_tokens=64, chunked_prefill=False
    )
    assert (names, stalls) == (["4", "0"], [True, False])


def test_sglang_keeps_room_for_the_output_that_it_reserves() -> None:
    names, stalls, _ = reasons(
        "sglang", [100, 100, 160], [59, 60, 1], block_size=1, num_blocks=160
    )
    assert (names, stalls) == (["0", "3", "2"], [False, True, True])


def test_a_decode_pool_too_small_for_the_prompt_stalls() -> None:
    found = reasons("vllm", [161], [1], prefill=role(num_blocks=100))
    assert found[:2] == (["2"], [True])


def test_refused_requests_return_with_their_arrival_as_their_end() -> None:
    from aisim_jax.replay import COMPLETED, REJECTED, Replayed
    from aisim_jax.replay._outcome import Admissions, TokenTimes
    from aisim_jax.replay._refusals import restored, without

    asked = workload(
        [10, 999, 20, 999],
        [1, 1, 1, 1],
        session_names=("a", "b", "c", "d"),
        max_in_flight=1,
    )
    refused = asked.isl_tokens > 100
    kept = without(asked, refused)
    assert kept.isl_tokens.tolist() == [10, 20]
    assert kept.session_names == ("a", "c")
    arrival, ends = np.array([0.0, 5.0]), np.array([5.0, 9.0])
    zeros = np.zeros(2, np.int64)
    answer = Replayed(
        arrival,
        arrival,
        ends,
        np.full(2, np.nan),
        ends,
        ends,
        np.full(2, COMPLETED),
        np.ones(2, np.int64),
        zeros,
        zeros,
        zeros,
        preemptions=0,
        committed_prefill_tokens=30,
        engine="test",
        admissions=lambda: Admissions(np.array([0, 1]), arrival, zeros, zeros),
        token_times=lambda: TokenTimes(ends, np.array([0, 1, 2])),
    )
    whole = restored(answer, asked, refused)
    assert whole.status.tolist() == [COMPLETED, REJECTED, COMPLETED, REJECTED]
    assert whole.terminal_ms.tolist() == [5.0, 5.0, 9.0, 9.0]
    assert whole.admissions is not None and whole.token_times is not None
    assert whole.admissions().request.tolist() == [0, 2]
    assert whole.token_times().start.tolist() == [0, 1, 1, 2, 2]


def test_a_refused_turn_hands_its_delay_to_the_next() -> None:
    from aisim_jax.replay._refusals import without

    asked = workload(
        [10, 999, 20, 999, 7],
        [1] * 5,
        session=np.array([0, 0, 0, 1, 1]),
        turn=np.array([0, 1, 2, 0, 1]),
        arrival_ms=np.array([1.0, np.nan, np.nan, 4.0, np.nan]),
        delay_ms=np.array([0.0, 30.0, 50.0, 0.0, 8.0]),
    )
    kept = without(asked, asked.isl_tokens > 100)
    assert kept.turn.tolist() == [0, 1, 0]
    assert kept.delay_ms.tolist() == [0.0, 80.0, 0.0]
    assert kept.arrival_ms[[0, 2]].tolist() == [1.0, 12.0]
