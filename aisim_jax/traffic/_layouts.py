"""Column names and time units of the table formats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


TimeUnit = Literal["ms", "s", "calendar"]


@dataclass(frozen=True)
class Layout:
    """Names that a column may have, first match wins; time: name -> unit.

    total: a redundant sum, checked. busy_s: seconds that the recorded answer took.
    failed_without_output: rows without output tokens are calls that failed.
    """

    time: tuple[tuple[str, TimeUnit], ...]
    isl: tuple[str, ...]
    osl: tuple[str, ...]
    session: tuple[str, ...] = ()
    delay_ms: tuple[str, ...] = ()
    total: tuple[str, ...] = ()
    busy_s: tuple[str, ...] = ()
    failed_without_output: bool = False


PLAIN = Layout(
    time=(
        ("timestamp", "ms"),
        ("timestamp_ms", "ms"),
        ("arrival_ms", "ms"),
        ("arrival_time_ms", "ms"),
        ("timestamp_s", "s"),
        ("arrival_s", "s"),
        ("arrived_at", "s"),
    ),
    isl=("input_tokens", "input_length", "isl", "isl_tokens", "prompt_tokens"),
    osl=("output_tokens", "output_length", "osl", "osl_tokens", "completion_tokens"),
    session=("session_id",),
    delay_ms=("delay", "delay_ms"),
)

LAYOUTS = {
    "azure": Layout(
        time=(("TIMESTAMP", "calendar"),),
        isl=("ContextTokens",),
        osl=("GeneratedTokens",),
    ),
    "burstgpt": Layout(
        time=(("Timestamp", "s"),),
        isl=("Request tokens",),
        osl=("Response tokens",),
        session=("Session ID",),
        total=("Total tokens",),
        busy_s=("Elapsed time",),
        failed_without_output=True,
    ),
    "vidur": Layout(
        time=(("arrived_at", "s"),),
        isl=("num_prefill_tokens",),
        osl=("num_decode_tokens",),
        total=("num_total_tokens",),
    ),
    "csv": PLAIN,
    "jsonl": PLAIN,
}
