"""Replay on arrays: engine settings with a leading scenario axis, answers likewise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from .._errors import InvalidInputError
from ..kernels.replay import Steps
from ..traffic import Workload
from ._deployment import Deployment, Policy, Role
from ._outcome import Replayed
from ._run import replay_scenarios


LIMITS = {
    "workers": 1,
    "ranks": 1,
    "max_batched_tokens": 8192,
    "max_sequences": 256,
    "block_size": 64,
}


class Scenarios(NamedTuple):
    """Answers of all scenarios; rows are scenarios, columns requests. Instants in ms.

    NaN where an instant did not happen. status: 0 unfinished, 1 completed, 2 rejected.
    """

    arrival_ms: Float[np.ndarray, "lanes reqs"]
    first_admit_ms: Float[np.ndarray, "lanes reqs"]
    first_token_ms: Float[np.ndarray, "lanes reqs"]
    last_token_ms: Float[np.ndarray, "lanes reqs"]
    terminal_ms: Float[np.ndarray, "lanes reqs"]
    status: Int[np.ndarray, "lanes reqs"]
    output_tokens: Int[np.ndarray, "lanes reqs"]
    reused_tokens: Int[np.ndarray, "lanes reqs"]
    preemptions: Int[np.ndarray, " lanes"]
    each: tuple[Replayed, ...]


def replay(
    traffic: Workload | Sequence[Workload],
    engine: Mapping[str, Any],
    timing: Steps | Sequence[Steps],
    *,
    policy: Policy = "vllm",
    log: bool = False,
) -> Scenarios:
    """Replay every scenario of a broadcast of workloads, engine settings and prices.

    engine: fields of `Role` by name, each a number or an array over scenarios;
    `num_blocks` is required. Workloads, settings and prices of length 1 serve all
    scenarios; workloads must have equally many requests. log: keep token times
    (`each[i].token_times`).

    >>> from aisim_jax.replay import fixed_steps, replay
    >>> from aisim_jax.traffic import synthetic
    >>> traffic = synthetic(8, isl_tokens=64, osl_tokens=4, max_in_flight=4)
    >>> found = replay(
    ...     traffic,
    ...     {"max_sequences": np.array([1, 4]), "num_blocks": 100},
    ...     fixed_steps(10.0, 3.0),
    ... )
    >>> found.terminal_ms.max(axis=1)
    array([152.,  38.])
    """
    workloads = [traffic] if isinstance(traffic, Workload) else list(traffic)
    prices = [timing] if isinstance(timing, Steps) else list(timing)
    known = {field.name for field in fields(Role)} - {"steps", "prices"}
    unknown = sorted(set(engine) - known)
    if unknown or "num_blocks" not in engine:
        raise InvalidInputError(
            f"engine: {', '.join(unknown) or 'no num_blocks'}; give num_blocks and any "
            f"of {', '.join(sorted(known))}"
        )
    columns = {name: np.atleast_1d(value) for name, value in engine.items()}
    lengths = {len(workloads), len(prices), *(len(c) for c in columns.values())} - {1}
    if len(lengths) > 1:
        raise InvalidInputError(
            f"traffic, engine and timing: scenario axes of {sorted(lengths)} do not "
            "agree; give each one scenario or all of them"
        )
    if len({workload.size for workload in workloads}) > 1:
        raise InvalidInputError(
            "traffic: workloads of different sizes do not stack; replay them apart"
        )
    count = lengths.pop() if lengths else 1
    scenarios = []
    for i in range(count):
        chosen = {
            name: column[i % len(column)].item() for name, column in columns.items()
        }
        role = Role(**{**LIMITS, **chosen}, steps=prices[i % len(prices)])
        scenarios.append((workloads[i % len(workloads)], Deployment(policy, role)))
    found = replay_scenarios(scenarios, log=log)
    stacked = {
        name: np.stack([getattr(one, name) for one in found])
        for name in Scenarios._fields[:-2]
    }
    preemptions = np.array([one.preemptions for one in found])
    return Scenarios(**stacked, preemptions=preemptions, each=tuple(found))
