"""Every named constant of the sweep, as one immutable parameter set."""

from __future__ import annotations

import math
from typing import NamedTuple

from aisim_jax.kernels import QueuePolicy, RoleConstants, XpuQueuePolicy


class SchedulePolicy(NamedTuple):
    """How an engine mixes prefill and decode in one step.

    `drain_steps`: mixed steps at the end of a batch that no decode request feels.
    `balances_decode`: when prefill outlasts decode, a mixed step holds only the
    requests that decode needs to keep pace.
    """

    drain_steps: int
    balances_decode: bool


class EnginePolicy(NamedTuple):
    """Scheduling and queueing constants of one engine."""

    schedule: SchedulePolicy
    queue: QueuePolicy


STEP_QUEUE = EnginePolicy(
    SchedulePolicy(drain_steps=3, balances_decode=True),
    QueuePolicy(
        queue_base=2.0,
        queue_steps_offset=3.0,
        queue_steps_divisor=20.0,
        queue_log2_divisor=math.inf,
        queue_cap=4.0,
        dispatch_ms_per_layer=0.0,
        rate_is_capped=False,
    ),
)
BATCH_QUEUE = EnginePolicy(
    SchedulePolicy(drain_steps=0, balances_decode=False),
    QueuePolicy(
        queue_base=1.0,
        queue_steps_offset=0.0,
        queue_steps_divisor=math.inf,
        queue_log2_divisor=8.0,
        queue_cap=2.0,
        dispatch_ms_per_layer=0.8,
        rate_is_capped=True,
    ),
)


XPU_QUEUE = XpuQueuePolicy(
    dispatch_ms_per_layer=0.3,
    interference=0.45,
    log2_exponent=1.1,
    decode_exponent=0.5,
)


class SweepParameters(NamedTuple):
    """Constants of composition, rate matching and grids; the defaults are `compat`.

    Latency corrections multiply the step times of the two disaggregated roles; the
    degradations multiply the rate of a matched worker; `ttft_correction` multiplies
    the prefill time of a disaggregated deployment.
    """

    prefill_latency_correction: float = 1.1
    decode_latency_correction: float = 1.08
    prefill_degradation: float = 0.9
    decode_degradation: float = 0.92
    ttft_correction: float = 1.8
    decode_stride_tokens: int = 32
    max_prefill_workers: int = 32
    max_decode_workers: int = 32
    max_aggregated_batch: int = 512
    prefill_max_batch: int = 1
    decode_max_batch: int = 512
    context_stride_tokens: int = 512
    best_per_target: int = 10
    prefill_candidates: int = 32
    decode_candidates: int = 16
    best_disaggregated: int = 5
    replica_gpus: tuple[int, ...] = (1, 2, 4, 8, *range(16, 129, 8))
    max_replica_gpus: int = 128
    max_large_ep_replica_gpus: int = 512
    trtllm: EnginePolicy = STEP_QUEUE
    sglang: EnginePolicy = STEP_QUEUE
    vllm: EnginePolicy = BATCH_QUEUE
    xpu: XpuQueuePolicy = XPU_QUEUE

    @property
    def roles(self) -> RoleConstants:
        """Corrections of a disaggregated deployment."""
        return RoleConstants(
            self.prefill_degradation, self.decode_degradation, self.ttft_correction
        )

    def engine(self, backend: str) -> EnginePolicy:
        """Constants of `backend`."""
        return getattr(self, backend)


COMPAT = SweepParameters()
