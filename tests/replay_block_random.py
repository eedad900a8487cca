"""Random scenarios of the block engine: fixed shapes, drawn values."""

from __future__ import annotations

import numpy as np
from oracle import replay_traffic as traffic
from oracle.replay_inputs import Engine, Pool, Request, Scenario, Tokenizer, Transfer
from oracle.replay_timing import Fixed, Polynomial


REQUESTS = 14
PRICES_MS = (0.0, 2.5, 3.0, 10.0)


def _requests(rng: np.random.Generator, closed: bool) -> list[Request]:
    """Lengths of many kinds; arrivals from bursts, gaps and ties; some sessions."""
    longest = rng.choice([8, 100, 300])
    isl = rng.integers(1, longest + 1, REQUESTS)
    osl = rng.integers(rng.choice([0, 1]), rng.choice([1, 6, 30]) + 1, REQUESTS)
    if rng.random() < 0.4:
        isl[:], osl[:] = isl[0], osl[0]
    gaps = rng.exponential(rng.choice([1.0, 20.0, 200.0]), REQUESTS)
    arrival = np.cumsum(gaps) - gaps[0]
    if rng.random() < 0.5:
        arrival = np.floor(arrival / 2.5) * 2.5
    turns = int(rng.choice([1, 1, 1, 2, 3]))
    delay = float(rng.choice([0.0, 2.5, 40.0]))
    requests, history = [], 0
    for i in range(REQUESTS):
        turn = i % turns
        history = history if turn else 0
        length = min(int(isl[i]) + history, 300)
        requests.append(
            Request(
                index=i,
                isl=length,
                osl=int(osl[i]),
                arrival_ms=0.0 if closed else float(arrival[i - turn]),
                session=i // turns,
                turn=turn,
                delay_ms=delay if turn else 0.0,
            )
        )
        history = length + int(osl[i])
    return requests


def _contents(rng: np.random.Generator, requests: list[Request]):
    """Shared prefixes of a few groups, or session histories, or nothing.

    Generated tokens are like nobody else's.
    """
    if any(request.turn for request in requests):
        return traffic.session_history(requests)
    if rng.random() < 0.3:
        return traffic.unique
    group = rng.integers(0, rng.choice([1, 3]), REQUESTS)
    shared = rng.choice([16, 64, 200]) * rng.integers(0, 3, REQUESTS)

    def key(request: int, block_size: int, b: int):
        prompt = min(int(shared[request]), requests[request].isl)
        if (b + 1) * block_size <= prompt:
            return ("group", int(group[request]), b)
        return ("own", request, b)

    return key


def _pool(rng, policy: str, requests: list[Request], role: str) -> Pool:
    size = int(rng.choice([8, 16, 64]))
    need = max(request.isl + request.osl for request in requests) + 4
    blocks = -(-need // size) * rng.choice([1.0, 1.3, 2.0, 4.0]) + rng.integers(3)
    vllm = policy == "vllm"
    ranks = int(rng.choice([1, 1, 1, 2])) if role != "prefill" else 1
    if rng.random() < 0.4:
        timing = Polynomial()
    else:
        timing = Fixed(float(rng.choice(PRICES_MS)), float(rng.choice(PRICES_MS)))
    return Pool(
        engine=Engine(
            policy=policy,
            block_size=size,
            num_blocks=min(int(blocks), 256),
            max_batched_tokens=int(rng.choice([16, 64, 300, 8192])),
            max_sequences=int(rng.choice([1, 3, 8])),
            max_model_len=int(rng.choice([60, 200])) if rng.random() < 0.2 else 100_000,
            chunked_prefill=bool(rng.random() < 0.9),
            prefix_caching=bool(rng.random() < 0.9),
            prefill_schedule_interval=int(rng.choice([1, 3])) if vllm else 1,
            preemption="fifo" if vllm and rng.random() < 0.1 else "lifo",
        ),
        timing=timing,
        workers=int(rng.choice([1, 2])),
        ranks=ranks,
        startup_ms=float(rng.choice([0.0, 0.0, 0.0, 15.0])),
    )


def draw_scenario(seed: int, policy: str, disaggregated: bool) -> Scenario:
    """One scenario; four workers at most."""
    rng = np.random.default_rng(seed)
    closed = bool(rng.integers(2))
    requests = _requests(rng, closed)
    stage = None
    if policy == "vllm" and not disaggregated and rng.random() < 0.1:
        stage = Tokenizer(
            2, float(rng.choice([0.0, 2.5])), float(rng.choice([0, 50.0]))
        )
    decode = _pool(rng, policy, requests, "decode")
    prefill = _pool(rng, policy, requests, "prefill") if disaggregated else None
    transfer = Transfer(
        bytes_per_token=float(rng.choice([0.0, 1e5])),
        bandwidth_gb_per_s=float(rng.choice([0.5, 5.0])),
        full_prompt=bool(rng.integers(2)),
        latency_ms=float(rng.choice([0.0, 2.5])),
    )
    return Scenario(
        requests=requests,
        block_key=_contents(rng, requests),
        decode=decode,
        prefill=prefill,
        transfer=transfer,
        max_in_flight=int(rng.integers(1, 12)) if closed else None,
        max_virtual_time_ms=500.0 if rng.random() < 0.05 else None,
        tokenizer=stage,
    )
