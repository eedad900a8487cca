"""Replay lanes of an engine on the local devices and save all that they answer.

Run as a program, with the engine and the file to write: the number of devices must be
chosen before the process starts.
"""

from __future__ import annotations

import sys
from dataclasses import fields
from typing import Any

import numpy as np


REQUESTS = 20
LANES = 6  # neither a power of two nor a multiple of the devices
# Policy, and whether prompts share tokens, of scenarios that an engine answers.
KINDS = {
    "counting": ("vllm", False),
    "block": ("vllm", True),
    "radix": ("sglang", True),
}


def lane(number: int, policy: Any, *, shared: bool) -> tuple[Any, Any]:
    """A closed loop or a burst on a pool that is too small; every lane differs."""
    from aisim_jax.kernels.replay import PolynomialSteps
    from aisim_jax.replay import Deployment, Role
    from aisim_jax.traffic import poisson_ms, synthetic

    rng = np.random.default_rng(number)
    page, pages = (1, 900) if policy == "sglang" else (16, 56)
    role = Role(
        workers=1,
        ranks=1,
        max_batched_tokens=256,
        max_sequences=8,
        block_size=page,
        num_blocks=pages,
        steps=PolynomialSteps(np.array(page * pages), np.array(0.0), np.array(0.0)),
        max_model_len=4096,
        prefix_caching=shared,
    )
    workload = synthetic(
        REQUESTS,
        isl_tokens=int(rng.integers(100, 300)),
        osl_tokens=int(rng.integers(20, 60)),
        cached_prefix_tokens=64 if shared else 0,
        arrival_ms=poisson_ms(REQUESTS, 50.0, number),
    )
    return workload, Deployment(policy, role)


def answers(engine: str) -> dict[str, Any]:
    """Arrays of every lane, logs included, by name."""
    from aisim_jax.replay import replay_scenarios

    policy, shared = KINDS[engine]
    lanes = [lane(number, policy, shared=shared) for number in range(LANES)]
    found: dict[str, Any] = {}
    for number, answer in enumerate(replay_scenarios(lanes, log=True)):
        assert answer.engine.startswith(engine), answer.engine
        for field in fields(answer):
            value = getattr(answer, field.name)
            if isinstance(value, np.ndarray | int):
                found[f"{number}/{field.name}"] = np.asarray(value)
        for log in (answer.admissions, answer.passes, answer.token_times):
            assert log is not None
            rows = log()
            for column in rows._fields:
                name = f"{number}/{type(rows).__name__}.{column}"
                found[name] = np.asarray(getattr(rows, column))
    return found


def main() -> None:
    import jax

    engine, target = sys.argv[1:]
    found = answers(engine)
    np.savez(target, devices=jax.local_device_count(), **found)


if __name__ == "__main__":
    main()
