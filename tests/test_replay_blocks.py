"""The block engine against the plain event loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from oracle.replay_inputs import Scenario, Stuck
from oracle.replay_oracle import replay
from replay_block_random import draw_scenario
from replay_records import deployment_of, unlike, workload_of


SCENARIOS = 2000
KINDS = [("vllm", False), ("trtllm", False), ("vllm", True), ("trtllm", True)]


def engine(scenarios: Sequence[Scenario], *, log: bool):
    """Answers of the engine under test."""
    from aisim_jax.replay._block_engine import replay_blocks

    return replay_blocks(
        [(workload_of(s), deployment_of(s)) for s in scenarios], log=log
    )


def solved(scenarios: list[Scenario]):
    """Scenarios in which nobody waits forever, with the oracle's answers."""
    found = []
    for scenario in scenarios:
        try:
            found.append((scenario, replay(scenario)))
        except Stuck:
            continue
    assert len(found) > 0.8 * len(scenarios)
    return zip(*found, strict=True)


@pytest.mark.parametrize(("policy", "disaggregated"), KINDS)
def test_random_scenarios_agree_with_the_event_loop(policy, disaggregated) -> None:
    drawn = [draw_scenario(seed, policy, disaggregated) for seed in range(SCENARIOS)]
    scenarios, outcomes = solved(drawn)
    answers = engine(scenarios, log=True)
    wrong = {
        number: differences
        for number, (found, outcome) in enumerate(zip(answers, outcomes, strict=True))
        if (differences := unlike(found, outcome))
    }
    assert not wrong


def speculating(scenario: Scenario, rates: tuple[float, ...]) -> Scenario:
    """The same scenario with draft tokens."""
    pool = scenario.decode
    return replace(
        scenario, decode=replace(pool, engine=replace(pool.engine, acceptance=rates))
    )


def test_speculation_draws_what_the_event_loop_draws() -> None:
    drawn = [
        speculating(draw_scenario(seed, "vllm", False), (0.85, 0.3))
        for seed in range(5000, 5200)
    ]
    scenarios, outcomes = solved(drawn)
    for found, outcome in zip(engine(scenarios, log=True), outcomes, strict=True):
        assert not unlike(found, outcome)


def test_a_lane_equals_the_scenario_alone_bit_for_bit() -> None:
    drawn = [draw_scenario(seed, "vllm", False) for seed in range(40)]
    scenarios, _ = solved(drawn)
    together = engine(scenarios, log=True)
    for scenario, lane in zip(scenarios[::4], together[::4], strict=True):
        (alone,) = engine([scenario], log=True)
        for name in (
            "first_admit_ms",
            "first_token_ms",
            "last_token_ms",
            "terminal_ms",
        ):
            np.testing.assert_array_equal(getattr(alone, name), getattr(lane, name))
        assert alone.token_times and lane.token_times
        np.testing.assert_array_equal(
            alone.token_times().at_ms, lane.token_times().at_ms
        )


def test_an_answer_without_logs_is_the_same() -> None:
    drawn = [draw_scenario(seed, "vllm", False) for seed in range(200)]
    scenarios, outcomes = solved(drawn)
    for found, outcome in zip(engine(scenarios, log=False), outcomes, strict=True):
        assert not unlike(found, outcome)


def test_a_request_that_can_never_proceed_is_an_error() -> None:
    from aisim_jax._errors import ReplayStalledError

    scenario = draw_scenario(0, "vllm", False)
    pool = scenario.decode
    small = replace(
        pool.engine, num_blocks=4, block_size=16, max_model_len=None, max_sequences=3
    )
    requests = [replace(request, isl=60, osl=60) for request in scenario.requests]
    hopeless = replace(
        scenario,
        requests=requests,
        decode=replace(pool, engine=small),
        max_virtual_time_ms=None,
    )
    with pytest.raises(ReplayStalledError, match="in-flight"):
        engine([hopeless], log=False)
