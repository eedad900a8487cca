"""What the replay oracle is given and what it answers, as plain Python records."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Request:
    """One prompt. arrival_ms: of turn 0 in an open loop; later turns wait delay_ms."""

    index: int
    isl: int
    osl: int
    arrival_ms: float = 0.0
    session: int = 0
    turn: int = 0
    delay_ms: float = 0.0


@dataclass(frozen=True)
class Engine:
    """Settings of one rank."""

    policy: str  # "vllm", "trtllm" or "sglang"
    block_size: int
    num_blocks: int
    max_batched_tokens: int
    max_sequences: int
    max_model_len: int | None = None
    chunked_prefill: bool = True
    prefix_caching: bool = True
    prefill_schedule_interval: int = 1
    prefill_decode_interval: int = 0
    preemption: str = "lifo"
    acceptance: tuple[float, ...] = ()
    speculation_seed: int = 42


@dataclass(frozen=True)
class Pool:
    """Workers of one role; `timing` answers prefill_ms and decode_ms (replay_timing)."""

    engine: Engine
    timing: Any
    workers: int = 1
    ranks: int = 1
    startup_ms: float = 0.0


@dataclass(frozen=True)
class Transfer:
    """KV transfer between the pools."""

    bytes_per_token: float = 0.0
    bandwidth_gb_per_s: float | None = None
    full_prompt: bool = False
    latency_ms: float = 0.0

    def delay_ms(self, isl: int, missing_tokens: int) -> float:
        """Time to move the prompt, or only the blocks that the destination lacks."""
        if not self.bandwidth_gb_per_s or not self.bytes_per_token:
            return self.latency_ms
        tokens = isl if self.full_prompt else missing_tokens
        return tokens * self.bytes_per_token / (self.bandwidth_gb_per_s * 1e9) * 1000.0


@dataclass(frozen=True)
class Tokenizer:
    """FIFO stage of parallel servers in front of the scheduler."""

    workers: int
    base_ms: float
    per_input_token_us: float

    def service_ms(self, isl: int) -> float:
        return self.base_ms + isl * self.per_input_token_us / 1000.0


@dataclass(frozen=True)
class Scenario:
    """`block_key(request, block_size, b)`: chained identity of full block b of a sequence.

    `decode` is the only pool when `prefill` is None. max_in_flight: closed loop.
    """

    requests: list[Request]
    block_key: Callable[[int, int, int], Hashable]
    decode: Pool
    prefill: Pool | None = None
    transfer: Transfer = Transfer()
    max_in_flight: int | None = None
    max_virtual_time_ms: float | None = None
    tokenizer: Tokenizer | None = None


@dataclass
class Record:
    """What happened to one request; instants in ms, None where it did not happen."""

    request: Request
    arrival_ms: float | None = None
    status: str | None = None  # completed, rejected; None: unfinished
    terminal_ms: float | None = None
    token_ms: list[float] = field(default_factory=list)
    admissions: list[tuple[float, str, int]] = field(default_factory=list)
    worker: int | None = None
    prefill_worker: int | None = None
    source_held_ms: float | None = None
    destination_reserved_ms: float | None = None
    destination_activated_ms: float | None = None
    source_released_ms: float | None = None

    def _admitted(self, pool: str) -> float | None:
        return next((at for at, where, _ in self.admissions if where == pool), None)

    @property
    def first_admit_ms(self) -> float | None:
        return self.admissions[0][0] if self.admissions else None

    @property
    def prefill_admit_ms(self) -> float | None:
        return self._admitted("prefill")

    @property
    def decode_admit_ms(self) -> float | None:
        return self._admitted("decode")

    @property
    def first_reused(self) -> int:
        return self.admissions[0][2] if self.admissions else 0

    def reused(self, pools: tuple[str, ...] = ("agg", "prefill", "decode")) -> int:
        """Largest reuse over the admissions of these pools."""
        return max(
            (reuse for _, pool, reuse in self.admissions if pool in pools), default=0
        )


@dataclass(frozen=True)
class PassRow:
    """One rank's pass that had work; end_ms is the end of its group."""

    start_ms: float
    end_ms: float
    pool: str  # agg, prefill or decode
    worker: int  # worker * ranks + rank
    prefill_requests: int
    sum_prompt_through_chunk: int
    sum_prefix: int
    decode_requests: int
    sum_context: int
    scheduled_tokens: int


@dataclass
class Outcome:
    """Answer of the oracle. blocks_stored/removed: changes of the findable set."""

    records: list[Record]
    passes: list[PassRow]
    preemptions: int = 0
    committed_prefill_tokens: int = 0
    blocks_stored: int = 0
    blocks_removed: int = 0
    end_ms: float = 0.0  # last instant that was processed


class Stuck(RuntimeError):
    """Requests are in flight and nothing can ever happen again."""
