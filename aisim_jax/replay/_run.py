"""Scenarios to answers: the cheapest engine that is exact for each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from .._errors import UnsupportedError
from ..traffic import Workload
from ._counting_engine import counts_exactly, prices_apart, replay_counting
from ._deployment import Deployment
from ._outcome import Replayed
from ._prices import with_prices


Scenario = tuple[Workload, Deployment]


def replay_scenarios(scenarios: Sequence[Scenario], *, log: bool) -> list[Replayed]:
    """Replay every scenario; order is kept.

    log: keep what token times, passes and admissions are made of. The prefix cache is
    simulated at the cheapest level that is exact: not at all where no prompts share
    tokens (again with it where something was preempted and may find its own blocks).
    `Replayed.engine` says what answered.
    """
    priced = with_prices(scenarios)
    plain = [_without_needless_cache(scenario) for scenario in priced]
    answers = _answered(plain, log)
    again = [
        i
        for i, answer in enumerate(answers)
        if answer.preemptions > 0 and plain[i] is not priced[i]
    ]
    if again:
        from ._block_engine import replay_blocks

        for i in again:
            _check_means(priced[i][1])
        exact = replay_blocks([priced[i] for i in again], log=log)
        for i, answer in zip(again, exact, strict=True):
            answers[i] = answer
    return answers


def _answered(scenarios: Sequence[Scenario], log: bool) -> list[Replayed]:
    members: dict[Callable[..., list[Replayed]], list[int]] = {}
    for i, scenario in enumerate(scenarios):
        members.setdefault(_engine(*scenario), []).append(i)
    found: dict[int, Replayed] = {}
    for engine, mine in members.items():
        found |= zip(mine, engine([scenarios[i] for i in mine], log=log), strict=True)
    return [found[i] for i in range(len(scenarios))]


def _engine(
    workload: Workload, deployment: Deployment
) -> Callable[..., list[Replayed]]:
    # Engines load when they are needed.
    if deployment.policy == "sglang":
        _check_means(deployment)
        from ._radix_engine import replay_radix

        return replay_radix
    if counts_exactly(workload, deployment):
        return replay_counting
    _check_means(deployment)
    from ._block_engine import replay_blocks

    return replay_blocks


def _without_needless_cache(scenario: Scenario) -> Scenario:
    """The same object where a prefix cache can matter from the start."""
    workload, deployment = scenario
    cached = deployment.decode.prefix_caching or (
        deployment.prefill is not None and deployment.prefill.prefix_caching
    )
    if deployment.policy == "sglang" or workload.contents.shares() or not cached:
        return scenario
    prefill = deployment.prefill
    return workload, replace(
        deployment,
        decode=replace(deployment.decode, prefix_caching=False),
        prefill=None if prefill is None else replace(prefill, prefix_caching=False),
    )


def _check_means(deployment: Deployment) -> None:
    if prices_apart(deployment):
        raise UnsupportedError(
            "engine.pricing: per_request is built for aggregated vllm and trtllm workers "
            "whose requests share no prompt tokens and are not preempted with a prefix "
            "cache; use means"
        )
