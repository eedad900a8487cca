"""The radix engine against the plain event loop of SGLang ranks, and user cases."""

from __future__ import annotations

import numpy as np
import pytest
from oracle import replay_sglang_loop as oracle


SCENARIOS = 2000
REQUESTS = 20


def fixed_steps(prefill_ms: float, decode_ms: float):
    from aisim_jax.kernels.replay import FixedSteps

    return FixedSteps(np.array(int(prefill_ms * 1e6)), np.array(int(decode_ms * 1e6)))


def polynomial_steps(pool_tokens: int):
    from aisim_jax.kernels.replay import PolynomialSteps

    return PolynomialSteps(np.array(pool_tokens), np.array(1.0), np.array(1.0))


def hashed(rng: np.random.Generator, isl: np.ndarray):
    """Prompts that branch off earlier ones at random depths."""
    from aisim_jax.traffic import HashBlocks

    block = int(rng.choice([2, 4, 8]))
    rows: list[list[int]] = []
    fresh = 0
    for tokens in isl:
        blocks = -(-int(tokens) // block)
        row: list[int] = []
        if rows:
            base = rows[max(len(rows) - 1 - int(rng.integers(6)), 0)]
            row = base[: int(rng.integers(len(base) + 1))][:blocks]
        while len(row) < blocks:
            row = [*row, fresh]
            fresh += 1
        rows.append(row)
    label = np.array([one for row in rows for one in row])
    start = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    return HashBlocks(label, start, block)


def draw(seed: int, *, workers: int = 1, ranks: int = 1):
    """One random scenario: distinct, shared or session prompts, often under pressure."""
    from aisim_jax.replay import Deployment, Role
    from aisim_jax.traffic import SessionHistory, Unique, Workload

    rng = np.random.default_rng(seed)
    kind = ("distinct", "shared", "shared", "sessions")[seed % 4]
    isl = rng.integers(1, rng.choice([6, 30, 60]) + 1, REQUESTS)
    osl = rng.integers(rng.choice([0, 1]), rng.choice([1, 5, 24]) + 1, REQUESTS)
    session, turn = np.arange(REQUESTS), np.zeros(REQUESTS, np.int64)
    closed = bool(rng.random() < 0.5)
    gaps = rng.exponential(rng.choice([1.0, 10.0, 60.0]), REQUESTS)
    arrival = np.cumsum(gaps) - gaps[0]
    if rng.random() < 0.4:
        arrival = np.floor(arrival / 2.5) * 2.5
    contents = Unique()
    if kind == "shared":
        contents = hashed(rng, isl)
    if kind == "sessions":
        session, turn = np.arange(REQUESTS) // 3, np.arange(REQUESTS) % 3
        for row in np.flatnonzero(turn > 0):
            isl[row] = isl[row - 1] + osl[row - 1] + rng.integers(1, 8)
        arrival = np.where(turn > 0, np.nan, arrival)
        groups = rng.integers(0, 2, session.max() + 1)
        contents = SessionHistory(session, groups, int(rng.integers(0, 5)))
    workload = Workload(
        arrival_ms=arrival,
        isl_tokens=isl,
        osl_tokens=osl,
        session=session,
        turn=turn,
        delay_ms=np.where(turn > 0, rng.choice([0.0, 7.5], REQUESTS), 0.0),
        max_in_flight=int(rng.integers(1, 12)) if closed else None,
        contents=contents,
    )
    page = int(rng.choice([1, 1, 4, 16]))
    need = int(np.max(-(-isl // page) * page + osl)) // page + 2
    pages = int(need * rng.choice([1.0, 1.3, 2.0, 8.0]))
    times = [(10.0, 3.0), (2.5, 0.5), (0.0, 3.0), (10.0, 0.0)]
    steps = polynomial_steps(page * pages)
    if workers == 1:  # one kind of prices a shape: each is a compilation
        steps = fixed_steps(*times[int(rng.integers(len(times)))])
    role = Role(
        workers=workers,
        ranks=ranks,
        max_batched_tokens=8192,
        max_sequences=int(rng.integers(2, 9)),
        block_size=page,
        num_blocks=pages,
        steps=steps,
        max_model_len=int(rng.choice([40, 60])) if rng.random() < 0.2 else None,
        prefill_decode_interval=int(rng.choice([0, 0, 0, 1, 3])),
        prefix_caching=bool(rng.random() < 0.9),
    )
    return workload, Deployment("sglang", role)


def run_all(scenarios):
    """Oracle runs; None where it stalls."""
    found = []
    for scenario in scenarios:
        try:
            found.append(oracle.replay(*scenario))
        except oracle.Stalled:
            found.append(None)
    return found


def same(found, loop: oracle.Loop) -> None:
    """Counts exactly, instants to 1e-6 ms."""
    for name, expected in oracle.arrays(loop).items():
        if name == "output_tokens":
            expected = np.where(found.status == 1, expected, 0)
        np.testing.assert_allclose(
            getattr(found, name), expected, rtol=0, atol=1e-6, err_msg=name
        )
    assert found.preemptions == loop.retractions


def same_logs(found, loop: oracle.Loop) -> None:
    """Tokens and admissions one by one, and passes in all."""
    times = found.token_times()
    for row, record in enumerate(loop.records):
        mine = times.at_ms[times.start[row] : times.start[row + 1]]
        np.testing.assert_allclose(mine, record.tokens, rtol=0, atol=1e-6)
    admissions = found.admissions()
    for row, record in enumerate(loop.records):
        mine = np.flatnonzero(admissions.request == row)
        reuse = [reuse for _, _, reuse in record.admissions]
        assert admissions.reused_tokens[mine].tolist() == reuse
    # Passes without any work are left out: columns 4 and 7 count its requests.
    worked = [one for one in loop.passes if one[4] or one[7]]
    assert found.passes().passes.sum() == len(worked)


@pytest.mark.parametrize(
    ("count", "workers", "ranks"),
    [
        (SCENARIOS, 1, 1),
        (40, 2, 1),
        (40, 1, 2),
        pytest.param(200, 2, 1, marks=pytest.mark.slow_replay),
        pytest.param(200, 1, 2, marks=pytest.mark.slow_replay),
    ],
)
def test_random_scenarios_agree_with_the_event_loop(count, workers, ranks) -> None:
    from aisim_jax.replay._radix_engine import replay_radix

    drawn = [draw(seed, workers=workers, ranks=ranks) for seed in range(count)]
    loops = run_all(drawn)
    kept = [i for i, loop in enumerate(loops) if loop is not None]
    assert len(kept) > 0.8 * count
    answers = replay_radix([drawn[i] for i in kept], log=True)
    for i, answer in zip(kept, answers, strict=True):
        same(answer, loops[i])
        same_logs(answer, loops[i])
    if count == SCENARIOS:
        assert sum(answer.preemptions for answer in answers) > 100
        assert {answer.engine for answer in answers} == {
            "radix: counting",
            "radix: tree of cached pages",
        }


def test_lane_equals_single_run_bit_for_bit() -> None:
    from aisim_jax.replay._radix_engine import replay_radix

    drawn = [draw(seed) for seed in range(1, 40, 4)]
    drawn = [one for one, loop in zip(drawn, run_all(drawn), strict=True) if loop]
    together = replay_radix(drawn, log=True)
    for one, answer in zip(drawn, together, strict=True):
        alone = replay_radix([one], log=True)[0]
        np.testing.assert_array_equal(alone.last_token_ms, answer.last_token_ms)
        np.testing.assert_array_equal(alone.reused_tokens, answer.reused_tokens)


def single_worker(page: int, pages: int):
    from aisim_jax.replay import Deployment, Role

    role = Role(
        workers=1,
        ranks=1,
        max_batched_tokens=8192,
        max_sequences=8,
        block_size=page,
        num_blocks=pages,
        steps=fixed_steps(10.0, 3.0),
    )
    return Deployment("sglang", role)


def plain_load(isl, osl, contents, in_flight):
    from aisim_jax.traffic import Workload

    n = len(isl)
    return Workload(
        arrival_ms=np.zeros(n),
        isl_tokens=np.array(isl),
        osl_tokens=np.array(osl),
        session=np.arange(n),
        turn=np.zeros(n, np.int64),
        delay_ms=np.zeros(n),
        max_in_flight=in_flight,
        contents=contents,
    )


def test_identical_prompt_reuses_all_but_its_last_token_across_chunks() -> None:
    from aisim_jax.replay._radix_engine import replay_radix
    from aisim_jax.traffic import HashBlocks

    lengths = np.array([4096, 8192, 16384, 32768, 122880])
    pairs = np.repeat(np.arange(lengths.size), 2)
    contents = HashBlocks(pairs, np.arange(pairs.size + 1), int(lengths.max()))
    load = plain_load(lengths[pairs], np.full(pairs.size, 8), contents, 1)
    found = replay_radix([(load, single_worker(1, 600_000))], log=False)[0]
    assert found.reused_tokens[::2].tolist() == [0] * lengths.size
    assert found.reused_tokens[1::2].tolist() == (lengths - 1).tolist()


def test_second_prompt_fills_the_chunk_budget_of_the_first() -> None:
    from aisim_jax.replay._radix_engine import replay_radix
    from aisim_jax.replay._radix_pack import SGLANG_LIMITS
    from aisim_jax.traffic import Unique

    limits = SGLANG_LIMITS._replace(chunked_prefill_tokens=np.int32(8))
    load = plain_load([4, 8], [2, 2], Unique(), 2)
    scenario = load, single_worker(4, 100)
    (found,) = replay_radix([scenario], log=True, limits=limits)
    assert found.passes is not None
    passes = found.passes()
    assert passes.prefill_requests[0] == 2
    assert passes.sum_prompt_through_chunk[0] == 8
    same(found, oracle.replay(*scenario, chunk=8))


def test_request_that_can_never_fit_is_reported() -> None:
    from aisim_jax import _errors
    from aisim_jax.replay._radix_engine import replay_radix
    from aisim_jax.traffic import Unique

    load = plain_load([50], [60], Unique(), 1)
    with pytest.raises(_errors.ReplayStalledError, match="1 in-flight"):
        replay_radix([(load, single_worker(1, 100))], log=False)
