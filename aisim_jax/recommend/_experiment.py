"""One question of a sweep: a model on a system with an engine in a serving mode."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._backends import BACKENDS
from .._defaults import TPOT_MS, TTFT_MS
from .._errors import InvalidInputError
from ._grids import Target, latency_targets, tpot_targets
from ._parameters import COMPAT, SweepParameters


SERVING_MODES = ("agg", "disagg")
PRECISION_PARTS = ("gemm", "moe", "kv", "fmha", "comm")
Sizes = Mapping[str, Sequence[int]]
# Beyond the context of any model: 10 Mi tokens.
LONGEST_REQUEST_TOKENS = 10 * 2**20


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Everything that one experiment depends on.

    isl, osl, prefix: prompt, output and cached prompt tokens of every request
    ttft_ms, tpot_ms: latency limits; with `request_latency_ms` the latter rules and
        ttft_ms only adds a first-token target (None: 95 % of it)
    total_gpus: GPUs to spend
    nextn, accepted: draft tokens per step and how many are accepted on average
    layouts: candidate sizes per role ("agg", "prefill", "decode") and dimension
    decode_*: where the decode pool differs from the prefill pool
    max_replica_gpus: largest disaggregated replica, default `total_gpus`
    precision: overrides by part (gemm, moe, kv, fmha, comm)
    memory_fraction: the engine's memory fraction, None = its own default
    """

    model: str
    system: str
    backend: str
    serving_mode: str
    total_gpus: int
    isl: int
    osl: int
    ttft_ms: float | None = TTFT_MS
    tpot_ms: float = TPOT_MS
    request_latency_ms: float | None = None
    prefix: int = 0
    version: str | None = None
    nextn: int = 0
    accepted: float = 0.0
    chunked_prefill: bool = False
    layouts: Mapping[str, Sizes] = field(default_factory=dict)
    decode_model: str | None = None
    decode_system: str | None = None
    decode_backend: str | None = None
    decode_version: str | None = None
    max_replica_gpus: int | None = None
    max_prefill_gpus: int | None = None
    max_decode_gpus: int | None = None
    precision: Mapping[str, str] = field(default_factory=dict)
    memory_fraction: float | None = None
    systems_paths: tuple[str, ...] = ()
    parameters: SweepParameters = COMPAT

    def __post_init__(self) -> None:
        _check(self)

    @property
    def tokens_per_step(self) -> float:
        """Tokens committed per decode iteration: 1 + accepted drafts."""
        return 1.0 + self.accepted

    def targets(self) -> tuple[Target, ...]:
        """Latency targets that the compatible sweep evaluates."""
        if self.request_latency_ms is not None:
            return latency_targets(self.osl, self.ttft_ms, self.request_latency_ms)
        return tpot_targets(math.inf if self.ttft_ms is None else self.ttft_ms)


def require_count(name: str, value: Any, least: int) -> None:
    """Refuse anything but a whole number of at least `least`."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or value < least:
        raise InvalidInputError(
            f"{name}={value!r} must be a whole number of at least {least}"
        )


def _check(question: Experiment) -> None:
    for name, least in (
        ("isl", 1),
        ("osl", 1),
        ("total_gpus", 1),
        ("prefix", 0),
        ("nextn", 0),
    ):
        require_count(name, getattr(question, name), least)
    if question.isl + question.osl > LONGEST_REQUEST_TOKENS:
        raise InvalidInputError(
            f"isl={question.isl} and osl={question.osl} make a request longer than "
            f"{LONGEST_REQUEST_TOKENS} tokens; shorten it"
        )
    if not 0 <= question.prefix < question.isl:
        raise InvalidInputError(
            f"prefix={question.prefix} must be in 0..isl-1 with isl={question.isl}; "
            "the last prompt token is always computed"
        )
    for name in ("ttft_ms", "tpot_ms", "request_latency_ms"):
        value = getattr(question, name)
        if value is not None and not value > 0:
            raise InvalidInputError(
                f"{name}={value} must be above 0; give a limit in milliseconds"
            )
    if question.backend not in BACKENDS:
        raise InvalidInputError(
            f"backend {question.backend!r} is not known; use one of {', '.join(BACKENDS)}"
        )
    if question.serving_mode not in SERVING_MODES:
        raise InvalidInputError(
            f"serving mode {question.serving_mode!r} is not known; use agg or disagg"
        )
    if not 0 <= question.accepted <= question.nextn:
        raise InvalidInputError(
            f"accepted={question.accepted} draft tokens must be in 0..nextn="
            f"{question.nextn}; set nextn to the draft length"
        )
    parts = set(question.precision) - set(PRECISION_PARTS)
    if parts:
        raise InvalidInputError(
            f"precision of {', '.join(sorted(parts))}: the parts are "
            f"{', '.join(PRECISION_PARTS)}"
        )
    unknown = set(question.layouts) - {"agg", "prefill", "decode"}
    if unknown:
        raise InvalidInputError(
            f"layouts for {', '.join(sorted(unknown))}: the roles are agg, prefill, decode"
        )
    fraction = question.memory_fraction
    if fraction is not None and not 0 < fraction <= 1:
        raise InvalidInputError(
            f"memory_fraction={fraction} must be in (0, 1]; leave it out for the default"
        )
