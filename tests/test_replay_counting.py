"""The counting engine against the plain event loop."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from oracle.replay_oracle import run_oracle
from replay_random import draw_role, draw_workload


SCENARIOS = 2000


def draw(seed: int, policy: Literal["vllm", "trtllm"]):
    """One random scenario without a prefix cache, and the oracle's prices."""
    from aisim_jax.replay import Deployment

    rng = np.random.default_rng(seed)
    workload = draw_workload(rng, closed=bool(seed % 2))
    workers = 1 + seed // 2 % 2
    role, pricing = draw_role(rng, workload, workers=workers, prefix_caching=False)
    return (workload, Deployment(policy, role)), pricing


def servable(scenario) -> bool:
    from aisim_jax.replay._admissible import admissible

    return not admissible(*scenario).stalls.any()


def same(found, outcome) -> None:
    """Counts exactly, instants to 1e-6 ms."""
    for row, record in enumerate(outcome.records):
        status = {None: 0, "completed": 1, "rejected": 2}[record.status]
        assert found.status[row] == status
        if status == 0:
            continue
        assert found.arrival_ms[row] == pytest.approx(record.arrival_ms, abs=1e-6)
        assert found.terminal_ms[row] == pytest.approx(record.terminal_ms, abs=1e-6)
        assert found.worker[row] == record.worker
        if status == 1:
            assert found.output_tokens[row] == len(record.token_ms)
            assert found.first_admit_ms[row] == pytest.approx(
                record.first_admit_ms, abs=1e-6
            )
        if record.token_ms:
            assert found.first_token_ms[row] == pytest.approx(
                record.token_ms[0], abs=1e-6
            )
            assert found.last_token_ms[row] == pytest.approx(
                record.token_ms[-1], abs=1e-6
            )
    if found.token_times is not None:
        times = found.token_times()
        for row, record in enumerate(outcome.records):
            if record.status == "completed":
                mine = times.at_ms[times.start[row] : times.start[row + 1]]
                np.testing.assert_allclose(mine, record.token_ms, rtol=0, atol=1e-6)
    assert found.preemptions == outcome.preemptions


@pytest.mark.parametrize("policy", ["vllm", "trtllm"])
def test_random_scenarios_agree_with_the_event_loop(
    policy: Literal["vllm", "trtllm"],
) -> None:
    from aisim_jax.replay._counting_engine import replay_counting

    drawn = [draw(seed, policy) for seed in range(SCENARIOS)]
    drawn = [one for one in drawn if servable(one[0])]
    assert len(drawn) > 0.6 * SCENARIOS
    asked = [one for one, _ in drawn]
    with_log = replay_counting(asked, log=True)
    without = replay_counting(asked, log=False)
    for (scenario, pricing), logged, plain in zip(
        drawn, with_log, without, strict=True
    ):
        outcome = run_oracle(*scenario, pricing)
        same(logged, outcome)
        same(plain, outcome)


def test_a_lane_equals_the_scenario_alone_bit_for_bit() -> None:
    from aisim_jax.replay._counting_engine import replay_counting

    scenarios = [draw(seed, "vllm")[0] for seed in range(60)]
    scenarios = [one for one in scenarios if servable(one)]
    together = replay_counting(scenarios, log=True)
    for scenario, lane in zip(scenarios[::5], together[::5], strict=True):
        (alone,) = replay_counting([scenario], log=True)
        for name in (
            "first_admit_ms",
            "first_token_ms",
            "last_token_ms",
            "terminal_ms",
        ):
            np.testing.assert_array_equal(getattr(alone, name), getattr(lane, name))
        assert alone.token_times is not None and lane.token_times is not None
        np.testing.assert_array_equal(
            alone.token_times().at_ms, lane.token_times().at_ms
        )


def test_lanes_side_by_side_equal_lanes_in_turn(monkeypatch) -> None:
    import jax

    from aisim_jax.replay._counting_engine import replay_counting

    # Every fourth draw: open loops of one worker.
    scenarios = [draw(seed, "vllm")[0] for seed in range(0, 80, 4)]
    scenarios = [one for one in scenarios if servable(one)]
    in_turn = replay_counting(scenarios, log=False)
    # The arrangement of accelerators, on whatever device runs the tests.
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    together = replay_counting(scenarios, log=False)
    for one, other in zip(in_turn, together, strict=True):
        for name in (
            "first_admit_ms",
            "first_token_ms",
            "last_token_ms",
            "terminal_ms",
        ):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        assert one.preemptions == other.preemptions
