"""What one rank plans for one engine step, and what a scheduler must offer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from .replay_inputs import Request


@dataclass
class Pass:
    """Effects of a step by request index; tokens, ends and rejections show at its end.

    prefill: requests, their prompt tokens after and before the step; decode: requests
    charged for decode and their tokens. held: prompts completed by a prefill worker.
    """

    admitted: list[tuple[int, int]] = field(default_factory=list)  # request, reuse
    prefill: tuple[int, int, int] = (0, 0, 0)
    decode: tuple[int, int] = (0, 0)
    scheduled_tokens: int = 0
    committed_prefill_tokens: int = 0  # of requests with prompt left to compute
    tokens: list[tuple[int, int]] = field(default_factory=list)  # request, count
    finished: list[int] = field(default_factory=list)
    rejected: list[int] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    preempted: int = 0

    @property
    def effective(self) -> bool:
        """Whether the step changed anything at all."""
        return bool(
            self.admitted
            or self.scheduled_tokens
            or self.tokens
            or self.finished
            or self.rejected
            or self.held
            or self.preempted
        )

    @property
    def empty(self) -> bool:
        """Whether the step has no model work to log."""
        return not (self.prefill[0] or self.decode[0])


class Scheduler(Protocol):
    """One rank; `plan` changes its state at once and is told the group's pass number.

    `pool.stored` and `pool.removed` count changes of the findable set.
    """

    pool: Any

    @property
    def has_work(self) -> bool: ...

    def submit(self, request: Request) -> None: ...

    def plan(self, group_pass: int) -> Pass: ...
