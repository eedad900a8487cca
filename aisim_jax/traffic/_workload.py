"""The requests of one scenario."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from ._contents import Contents, Unique


@dataclass(frozen=True)
class Tokenizer:
    """A stage in front of the scheduler: FIFO over `workers` parallel servers.

    Service time: base_ms + isl * per_input_token_us / 1000.
    """

    workers: int
    base_ms: float
    per_input_token_us: float


@dataclass(frozen=True)
class Workload:
    """Requests in index order: synthetic order, or the rows of a trace in file order.

    arrival_ms: instant at which turn 0 of a session arrives, >= 0; ignored in a closed
    loop; NaN for later turns, which are ready `delay_ms` after the previous turn ends.
    max_in_flight: sessions in flight in a closed loop, None in an open loop. A plain
    request is a session of one turn. isl_tokens >= 1; osl_tokens >= 0.
    """

    arrival_ms: Float[np.ndarray, " reqs"]
    isl_tokens: Int[np.ndarray, " reqs"]
    osl_tokens: Int[np.ndarray, " reqs"]
    session: Int[np.ndarray, " reqs"]
    turn: Int[np.ndarray, " reqs"]
    delay_ms: Float[np.ndarray, " reqs"]
    max_in_flight: int | None = None
    contents: Contents = field(default_factory=Unique)
    max_virtual_time_ms: float | None = None
    tokenizer: Tokenizer | None = None
    session_names: tuple[str, ...] | None = None  # None: session_0, session_1, ...
    notes: tuple[str, ...] = ()  # what a person should know about these requests

    @property
    def size(self) -> int:
        """How many requests."""
        return int(self.isl_tokens.size)

    @property
    def has_sessions(self) -> bool:
        """Whether any session has a second turn."""
        return bool((self.turn > 0).any())
