"""Limits that a search calls idle change nothing in a replay."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.replay_inputs import Stuck
from oracle.replay_oracle import run_oracle
from oracle.replay_timing import Polynomial


AMPLE = {
    "num_blocks": 1 << 16,
    "max_sequences": 1 << 12,
    "max_batched_tokens": 1 << 20,
}


class Prices(Polynomial):
    """Prices that depend on the batch but not on the size of the pool."""

    def decode_ms(self, n, total, mean, capacity):
        return super().decode_ms(n, total, mean, 4096)


def draw_workload(rng):
    from aisim_jax.traffic import Workload

    size = 16
    isl = rng.integers(1, rng.choice([8, 60, 200]) + 1, size)
    osl = rng.integers(1, rng.choice([2, 20]) + 1, size)
    if rng.random() < 0.5:
        isl[:], osl[:] = isl[0], osl[0]
    return Workload(
        arrival_ms=np.cumsum(rng.exponential(20.0, size)),
        isl_tokens=isl.astype(np.int32),
        osl_tokens=osl.astype(np.int32),
        session=np.arange(size, dtype=np.int32),
        turn=np.zeros(size, np.int32),
        delay_ms=np.zeros(size),
        max_in_flight=int(rng.integers(1, 9)) if rng.random() < 0.7 else None,
    )


def draw_role(rng, workload, **changes):
    import jax.numpy as jnp

    from aisim_jax import precision
    from aisim_jax.kernels.replay import FixedSteps
    from aisim_jax.replay import Role

    with precision():
        steps = FixedSteps(jnp.int64(10_000_000), jnp.int64(3_000_000))
    block = int(rng.choice([2, 16]))
    longest = int((workload.isl_tokens + workload.osl_tokens).max())
    whole = -(-(longest + 1) // block)
    limits = {
        "workers": int(rng.integers(1, 4)),
        "ranks": 1,
        "max_batched_tokens": int(rng.choice([16, 64, 200, 500, 2000])),
        "max_sequences": int(rng.choice([1, 2, 4, 8, 16])),
        "block_size": block,
        "num_blocks": whole * int(rng.choice([1, 2, 4, 9, 17])),
        "steps": steps,
    }
    return Role(**{**limits, **changes})


def idle_limits(own, policy, duty, facts):
    """The limits of a role that are said never to bind, with ample values."""
    from aisim_jax.recommend.search._folding import NEVER_BINDS, role_behaviour

    behaviour = dict(role_behaviour(own, policy, duty, facts))
    return {name: AMPLE[name] for name in AMPLE if behaviour[name] == NEVER_BINDS}


def released(deployment, workload):
    """The deployment with every idle limit lifted, and how many there were."""
    from aisim_jax.recommend.search._folding import extremes

    facts, policy = extremes(workload), deployment.policy
    changes, number = {}, 0
    for name in ("decode", "prefill"):
        own = getattr(deployment, name)
        if own is not None:
            alone = deployment.prefill is None
            idle = idle_limits(own, policy, "aggregated" if alone else name, facts)
            changes[name], number = replace(own, **idle), number + len(idle)
    return replace(deployment, **changes), number


def instants(workload, deployment):
    try:
        outcome = run_oracle(workload, deployment, Prices())
    except Stuck as stuck:
        return str(stuck)
    return [
        (one.status, one.terminal_ms, one.token_ms, one.admissions, one.worker)
        for one in outcome.records
    ]


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("policy", ["vllm", "trtllm"])
@settings(max_examples=150, derandomize=True, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_idle_limits_change_no_instant(policy, apart, seed):
    from aisim_jax.replay import Deployment

    rng = np.random.default_rng(seed)
    workload = draw_workload(rng)
    decode = draw_role(rng, workload)
    prefill = draw_role(rng, workload, block_size=decode.block_size) if apart else None
    deployment = Deployment(policy, decode, prefill)
    lifted, idle = released(deployment, workload)
    if idle:
        assert instants(workload, deployment) == instants(workload, lifted)


def test_folded_and_distinct_settings_of_a_prefill_role():
    """8192 tokens hold two prompts of 4000 and a piece: four requests at once."""
    from aisim_jax.recommend.search._folding import extremes
    from aisim_jax.traffic import Workload

    size = 96
    workload = Workload(
        arrival_ms=np.zeros(size),
        isl_tokens=np.full(size, 4000, np.int32),
        osl_tokens=np.full(size, 500, np.int32),
        session=np.arange(size, dtype=np.int32),
        turn=np.zeros(size, np.int32),
        delay_ms=np.zeros(size),
        max_in_flight=32,
    )
    facts = extremes(workload)
    rng = np.random.default_rng(0)

    def idle(tokens, sequences):
        own = draw_role(
            rng,
            workload,
            workers=1,
            block_size=64,
            num_blocks=10_000,
            max_batched_tokens=tokens,
            max_sequences=sequences,
        )
        return set(idle_limits(own, "vllm", "prefill", facts)) - {"num_blocks"}

    assert idle(8192, 1) == {"max_batched_tokens"}
    assert idle(8192, 2) == {"max_batched_tokens"}
    assert idle(8192, 4) == {"max_sequences"}
    assert idle(16384, 4) == {"max_batched_tokens"}
    assert idle(32768, 8) == {"max_batched_tokens"}
    assert idle(32768, 16) == {"max_sequences"}
    assert idle(131072, 32) == {"max_batched_tokens", "max_sequences"}
