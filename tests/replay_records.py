"""Oracle scenarios as aisim_jax records, and answers of both compared."""

from __future__ import annotations

import numpy as np
from oracle.replay_inputs import Outcome, Pool, Scenario


def contents_of(scenario: Scenario):
    """Block contents of a scenario, as dense ids."""
    from aisim_jax.traffic._contents import BlockKeys, Contents

    class Keyed(Contents):
        def shares(self) -> bool:
            return True

        def block_keys(self, isl_tokens, osl_tokens, block_size):
            names: dict[object, int] = {}
            ids: list[int] = []
            start = [0]
            for row, (isl, osl) in enumerate(zip(isl_tokens, osl_tokens, strict=True)):
                for b in range(int(isl + osl) // block_size):
                    name = scenario.block_key(row, block_size, b)
                    ids.append(names.setdefault(name, len(names)))
                start.append(len(ids))
            return BlockKeys(np.array(ids, np.int32), np.array(start), len(names))

    return Keyed()


def workload_of(scenario: Scenario):
    """Its traffic."""
    from aisim_jax.traffic import Tokenizer, Workload

    requests, stage = scenario.requests, scenario.tokenizer

    def each(name: str, kind: type) -> np.ndarray:
        return np.array([getattr(request, name) for request in requests], kind)

    return Workload(
        arrival_ms=each("arrival_ms", np.float64),
        isl_tokens=each("isl", np.int32),
        osl_tokens=each("osl", np.int32),
        session=each("session", np.int32),
        turn=each("turn", np.int32),
        delay_ms=each("delay_ms", np.float64),
        max_in_flight=scenario.max_in_flight,
        contents=contents_of(scenario),
        max_virtual_time_ms=scenario.max_virtual_time_ms,
        tokenizer=stage
        and Tokenizer(stage.workers, stage.base_ms, stage.per_input_token_us),
    )


def _role_of(pool: Pool):
    from replay_either_steps import either

    from aisim_jax.replay import Role

    engine, timing = pool.engine, pool.timing
    steps = either(timing, engine.num_blocks * engine.block_size)
    return Role(
        workers=pool.workers,
        ranks=pool.ranks,
        max_batched_tokens=engine.max_batched_tokens,
        max_sequences=engine.max_sequences,
        block_size=engine.block_size,
        num_blocks=engine.num_blocks,
        steps=steps,
        max_model_len=engine.max_model_len,
        chunked_prefill=engine.chunked_prefill,
        prefix_caching=engine.prefix_caching,
        prefill_schedule_interval=engine.prefill_schedule_interval,
        prefill_decode_interval=engine.prefill_decode_interval,
        preemption="fifo" if engine.preemption == "fifo" else "lifo",
        startup_ms=pool.startup_ms,
        acceptance=engine.acceptance,
        speculation_seed=engine.speculation_seed,
    )


def deployment_of(scenario: Scenario):
    """Its engines."""
    from aisim_jax.replay import Deployment, Transfer

    transfer = scenario.transfer
    return Deployment(
        "trtllm" if scenario.decode.engine.policy == "trtllm" else "vllm",
        _role_of(scenario.decode),
        scenario.prefill and _role_of(scenario.prefill),
        Transfer(
            transfer.bytes_per_token,
            transfer.bandwidth_gb_per_s,
            transfer.full_prompt,
            transfer.latency_ms,
        ),
    )


STATUS = {None: 0, "completed": 1, "rejected": 2}
HANDOFF = (
    "prefill_worker",
    "prefill_admit_ms",
    "source_held_ms",
    "destination_reserved_ms",
    "destination_activated_ms",
    "decode_admit_ms",
    "source_released_ms",
)


def unlike(found, outcome: Outcome, tolerance_ms: float = 0.0) -> list[str]:
    """Every figure of an engine's answer that differs from the oracle's."""
    wrong: list[str] = []

    def close(where: str, mine, theirs) -> None:
        mine, theirs = float(mine), np.nan if theirs is None else float(theirs)
        if not (
            abs(mine - theirs) <= tolerance_ms or (mine != mine and theirs != theirs)
        ):
            wrong.append(f"{where}: {mine!r} instead of {theirs!r}")

    logged = found.token_times is not None
    times = found.token_times() if logged else None
    for row, record in enumerate(outcome.records):
        tokens = record.token_ms
        close(f"{row} status", found.status[row], STATUS[record.status])
        if record.status is None:
            continue
        close(f"{row} arrival", found.arrival_ms[row], record.arrival_ms)
        close(f"{row} terminal", found.terminal_ms[row], record.terminal_ms)
        close(f"{row} admit", found.first_admit_ms[row], record.first_admit_ms)
        close(f"{row} tokens", found.output_tokens[row], len(tokens))
        close(f"{row} first", found.first_token_ms[row], tokens[0] if tokens else None)
        second = tokens[1] if len(tokens) > 1 else None
        close(f"{row} second", found.second_token_ms[row], second)
        close(f"{row} last", found.last_token_ms[row], tokens[-1] if tokens else None)
        if record.worker is not None:
            close(f"{row} worker", found.worker[row], record.worker)
        close(f"{row} reuse", found.reused_tokens[row], record.reused())
        close(f"{row} first reuse", found.first_reused_tokens[row], record.first_reused)
        if found.handoff is not None:
            for name in HANDOFF:
                mine, theirs = getattr(found.handoff, name)[row], getattr(record, name)
                close(f"{row} {name}", mine, theirs)
        if times is not None and record.status == "completed":
            mine = times.at_ms[times.start[row] : times.start[row + 1]]
            if not np.allclose(mine, tokens, rtol=0, atol=tolerance_ms):
                wrong.append(f"{row} token times")
    close("preemptions", found.preemptions, outcome.preemptions)
    if logged:
        wrong += _unlike_logs(found, outcome, tolerance_ms)
    return wrong


def _unlike_logs(found, outcome: Outcome, tolerance_ms: float) -> list[str]:
    pools = ("agg", "prefill", "decode")
    admissions = found.admissions()
    mine = sorted(zip(*admissions, strict=True))
    theirs = sorted(
        (row, at, pools.index(pool), reuse)
        for row, record in enumerate(outcome.records)
        for at, pool, reuse in record.admissions
    )
    if not np.array_equal(np.array(mine), np.array(theirs)):
        return ["admissions"]
    log = found.passes()
    own = {
        (pool, worker, start) for start, _, pool, worker, *_ in zip(*log, strict=True)
    }
    runs = sum(int(n) for n in log.passes)
    # A stretch that a time cap interrupts is not written down.
    capped = any(record.status is None for record in outcome.records)
    if runs != len(outcome.passes) and not capped:
        return [f"{runs} passes instead of {len(outcome.passes)}"]
    starts = {(pools.index(p.pool), p.worker, p.start_ms) for p in outcome.passes}
    return [] if own <= starts else ["pass starts"]
