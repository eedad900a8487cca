"""SGLang with a prefill and a decode pool: the radix engine against the event loop."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from oracle import replay_sglang_pd as oracle
from oracle.replay_sglang_loop import Stalled
from test_replay_radix import draw, fixed_steps


HANDOFF = {
    "source_held_ms": "held",
    "destination_reserved_ms": "reserved",
    "destination_activated_ms": "activated",
    "source_released_ms": "released",
    "prefill_worker": "prefill_worker",
}


def draw_pools(seed: int, *, workers: tuple[int, int], ranks: tuple[int, int]):
    """A random scenario with two pools of their own limits, often under pressure."""
    from aisim_jax.replay import Deployment, Transfer

    workload, deployment = draw(seed, workers=workers[1], ranks=ranks[1])
    rng = np.random.default_rng(10_000 + seed)
    isl, osl = workload.isl_tokens, np.maximum(workload.osl_tokens, 1)
    role = deployment.decode

    def pool(workers: int, ranks: int, output: int):
        page = int(rng.choice([1, 4, 16]))
        need = int(np.max(-(-isl // page))) + output // page + 2
        # The reference never ends where decode passes take no time.
        times = [(10.0, 3.0), (2.5, 0.5), (0.0, 3.0)][int(rng.integers(3))]
        return replace(
            role,
            workers=workers,
            ranks=ranks,
            block_size=page,
            num_blocks=int(need * rng.choice([1.0, 1.3, 2.0, 8.0])),
            max_sequences=int(rng.integers(1, 9)),
            prefix_caching=bool(rng.random() < 0.9),
            prefill_decode_interval=int(rng.choice([0, 0, 0, 1, 3])),
            steps=fixed_steps(*times),
        )

    transfer = Transfer(
        bytes_per_token=float(rng.choice([0.0, 100_000.0])),
        bandwidth_gb_per_s=float(rng.choice([0.5, 1.0])),
        full_prompt=bool(rng.random() < 0.3),
        latency_ms=float(rng.choice([0.0, 0.0, 4.0])),
    )
    decode = pool(workers[1], ranks[1], int(osl.max()))
    deployment = Deployment("sglang", decode, pool(workers[0], ranks[0], 1), transfer)
    return replace(workload, osl_tokens=osl), deployment


def looped(scenario):
    """The event loop's run, None where it stalls."""
    try:
        return oracle.replay(*scenario)
    except Stalled:
        return None


def same(found, loop) -> None:
    """Counts exactly, instants to 1e-6 ms, tokens and admissions one by one."""
    records = loop.records
    for name, theirs in HANDOFF.items():
        expected = [getattr(record, theirs) for record in records]
        mine = getattr(found.handoff, name)
        np.testing.assert_allclose(mine, expected, rtol=0, atol=1e-6, err_msg=name)
    for name in ("arrival", "terminal"):
        mine = getattr(found, f"{name}_ms")
        expected = [getattr(record, name) for record in records]
        np.testing.assert_allclose(mine, expected, rtol=0, atol=1e-6, err_msg=name)
    assert found.status.tolist() == [record.status for record in records]
    assert found.worker.tolist() == [record.worker for record in records]
    times, admissions = found.token_times(), found.admissions()
    for row, record in enumerate(records):
        mine = times.at_ms[times.start[row] : times.start[row + 1]]
        np.testing.assert_allclose(mine, record.tokens, rtol=0, atol=1e-6)
        own = admissions.request == row
        reuse = admissions.reused_tokens[own]
        where = list(zip(admissions.pool[own], reuse, strict=True))
        assert where == [(pool, reuse) for _, pool, reuse in record.admissions]
        at_ms = [at_ms for at_ms, _, _ in record.admissions]
        np.testing.assert_allclose(admissions.at_ms[own], at_ms, rtol=0, atol=1e-6)
    assert found.preemptions == loop.retractions
    ranks = [rank for pool in loop.pools for worker in pool for rank in worker.ranks]
    assert found.committed_prefill_tokens == sum(rank.committed for rank in ranks)
    worked = [one for one in loop.passes if one[4] or one[7]]
    assert found.passes().passes.sum() == len(worked)


@pytest.mark.parametrize(
    ("count", "workers", "ranks"),
    [
        (40, (1, 1), (1, 1)),
        pytest.param(600, (1, 1), (1, 1), marks=pytest.mark.slow_replay),
        pytest.param(200, (2, 2), (1, 1), marks=pytest.mark.slow_replay),
        pytest.param(200, (1, 2), (2, 2), marks=pytest.mark.slow_replay),
    ],
)
def test_random_hand_overs_agree_with_the_event_loop(count, workers, ranks) -> None:
    from aisim_jax.replay._radix_engine import replay_radix

    drawn = [draw_pools(seed, workers=workers, ranks=ranks) for seed in range(count)]
    loops = [looped(scenario) for scenario in drawn]
    kept = [i for i, loop in enumerate(loops) if loop is not None]
    assert len(kept) > 0.7 * count
    answers = replay_radix([drawn[i] for i in kept], log=True)
    for i, answer in zip(kept, answers, strict=True):
        same(answer, loops[i])
    assert sum(answer.preemptions for answer in answers) > 10


def test_lane_with_two_pools_equals_single_run_bit_for_bit() -> None:
    from aisim_jax.replay._radix_engine import replay_radix

    drawn = [draw_pools(seed, workers=(1, 1), ranks=(1, 1)) for seed in range(1, 30, 4)]
    drawn = [one for one in drawn if looped(one)]
    together = replay_radix(drawn, log=True)
    for one, answer in zip(drawn, together, strict=True):
        alone = replay_radix([one], log=True)[0]
        np.testing.assert_array_equal(alone.last_token_ms, answer.last_token_ms)
        assert alone.handoff is not None and answer.handoff is not None
        np.testing.assert_array_equal(
            alone.handoff.source_released_ms, answer.handoff.source_released_ms
        )
