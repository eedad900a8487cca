"""Run a scenario, given plainly or as aisim_jax records."""

from __future__ import annotations

from typing import Any

from .replay_clock import Aggregated
from .replay_inputs import (
    Engine,
    Outcome,
    Pool,
    Request,
    Scenario,
    Tokenizer,
    Transfer,
)
from .replay_pd import Disaggregated
from .replay_trtllm import TrtllmScheduler
from .replay_vllm import VllmScheduler


SCHEDULERS = {"vllm": VllmScheduler, "trtllm": TrtllmScheduler}


def replay(scenario: Scenario) -> Outcome:
    """The scenario, event by event."""
    topology = Disaggregated if scenario.prefill else Aggregated
    return topology(scenario, SCHEDULERS[scenario.decode.engine.policy]).run()


def run_oracle(workload: Any, deployment: Any, pricing: Any) -> Outcome:
    """Replay an aisim_jax Workload on a Deployment.

    pricing: replay_timing of the only role, or {"prefill": ..., "decode": ...}.
    """
    return replay(scenario_of(workload, deployment, pricing))


def scenario_of(workload: Any, deployment: Any, pricing: Any) -> Scenario:
    """The same scenario as plain records."""
    requests = [
        Request(
            index=row,
            isl=int(workload.isl_tokens[row]),
            osl=int(workload.osl_tokens[row]),
            arrival_ms=float(workload.arrival_ms[row]),
            session=int(workload.session[row]),
            turn=int(workload.turn[row]),
            delay_ms=float(workload.delay_ms[row]),
        )
        for row in range(workload.size)
    ]
    if not isinstance(pricing, dict):
        pricing = {"decode": pricing, "prefill": pricing}
    chains: dict[int, Any] = {}

    def block_key(request: int, block_size: int, b: int):
        if block_size not in chains:
            chains[block_size] = workload.contents.block_keys(
                workload.isl_tokens, workload.osl_tokens, block_size
            )
        keys = chains[block_size]
        at = int(keys.start[request]) + b
        return int(keys.ids[at]) if at < keys.start[request + 1] else (request, b)

    transfer, stage = deployment.transfer, workload.tokenizer
    prefill = deployment.prefill
    return Scenario(
        requests=requests,
        block_key=block_key,
        decode=_pool(deployment.policy, deployment.decode, pricing["decode"]),
        prefill=prefill and _pool(deployment.policy, prefill, pricing["prefill"]),
        transfer=Transfer(
            transfer.bytes_per_token,
            transfer.bandwidth_gb_per_s,
            transfer.full_prompt,
            transfer.latency_ms,
        ),
        max_in_flight=workload.max_in_flight,
        max_virtual_time_ms=workload.max_virtual_time_ms,
        tokenizer=stage
        and Tokenizer(stage.workers, stage.base_ms, stage.per_input_token_us),
    )


def _pool(policy: str, role: Any, timing: Any) -> Pool:
    return Pool(
        engine=Engine(
            policy=policy,
            block_size=role.block_size,
            num_blocks=role.num_blocks,
            max_batched_tokens=role.max_batched_tokens,
            max_sequences=role.max_sequences,
            max_model_len=role.max_model_len,
            chunked_prefill=role.chunked_prefill,
            prefix_caching=role.prefix_caching,
            prefill_schedule_interval=role.prefill_schedule_interval,
            prefill_decode_interval=role.prefill_decode_interval,
            preemption=role.preemption,
            acceptance=tuple(role.acceptance),
            speculation_seed=role.speculation_seed,
        ),
        timing=timing,
        workers=role.workers,
        ranks=role.ranks,
        startup_ms=role.startup_ms,
    )
