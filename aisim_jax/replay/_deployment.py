"""What is simulated: engine roles, their limits and prices, with nothing left to look up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..kernels.replay import Steps
from ._op_level_prices import OpLevelPrices


Policy = Literal["vllm", "trtllm", "sglang"]


@dataclass(frozen=True)
class Role:
    """The workers of one role; limits hold per rank. Tokens, blocks, ms.

    ranks: attention data parallelism, ranks of a worker step together. max_model_len:
    None where the engine has no limit. steps: prices of one rank's pass. prices: where
    `with_prices` takes the steps from once the workload is known, None where they are
    final. acceptance: conditional acceptance rate of each draft token, () without
    speculation.
    """

    workers: int
    ranks: int
    max_batched_tokens: int
    max_sequences: int
    block_size: int
    num_blocks: int
    steps: Steps
    max_model_len: int | None = None
    chunked_prefill: bool = True
    prefix_caching: bool = True
    prefill_schedule_interval: int = 1
    prefill_decode_interval: int = 0
    preemption: Literal["lifo", "fifo"] = "lifo"
    startup_ms: float = 0.0
    acceptance: tuple[float, ...] = ()
    speculation_seed: int = 42
    gpus_per_worker: int = 1
    prices: OpLevelPrices | None = None


@dataclass(frozen=True)
class Transfer:
    """KV transfer from prefill to decode; 0 bytes or no bandwidth: instantaneous."""

    bytes_per_token: float = 0.0
    bandwidth_gb_per_s: float | None = None
    full_prompt: bool = False
    latency_ms: float = 0.0


@dataclass(frozen=True)
class Deployment:
    """An aggregated pool (`decode` only, prefill None) or a prefill and a decode pool."""

    policy: Policy
    decode: Role
    prefill: Role | None = None
    transfer: Transfer = Transfer()

    @property
    def disaggregated(self) -> bool:
        """Whether prefill has workers of its own."""
        return self.prefill is not None
