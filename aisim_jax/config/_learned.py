"""Controls of the learned estimator and of the selector that sits on top of it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from ._problems import problem
from ._record import U64, Flag, Real, Record, Text


class LearnedConfig(Record):
    """Controls of the learned estimator."""

    artifact_path: Text | None = Field(default=None, description="Frozen trained law.")
    checkpoint_path: Text | None = Field(
        default=None, description="Law that keeps learning."
    )
    source_sha256: Text | None = Field(
        default=None, description="Digest of the source file."
    )
    adaptation: Literal["online", "frozen", "causal_selector"] = Field(
        default="online", description="How the law follows observations."
    )
    update_mode: Literal["structural", "leaf_only"] = Field(
        default="structural", description="What an update may change."
    )
    recent_window: U64 = Field(default=64, description="Recent observations kept, > 0.")
    history_weight: Real = Field(
        default=0.1, description="Weight of older ones, in [0, 1]."
    )
    history_weight_ramp_observations: U64 = Field(default=32, description="> 0.")
    history_bin_grouping: Flag = Field(
        default=True, description="Group history by bin."
    )
    mutable_tree_tail: U64 | None = Field(
        default=None, description="null = every tree."
    )
    update_step: Real = Field(default=1.0, description="Step of an update, in (0, 1].")
    recent_max_age_observations: U64 | None = Field(
        default=None, description="null = no limit."
    )
    update_every: U64 = Field(default=1, description="Observations per update, > 0.")
    derivative_refresh: Literal["lazy", "eager"] = Field(
        default="lazy", description="When derivatives are recomputed."
    )
    split_sampling_rate: Real = Field(default=0.5, description="In (0, 1].")
    split_rank_tolerance: Real = Field(default=0.01, description="In [0, 1].")
    eager_refresh_interval: U64 = Field(default=32, description="> 0.")
    seed: U64 = Field(default=0, description="Random seed.")

    @model_validator(mode="after")
    def _check(self) -> LearnedConfig:
        for name in _COUNTS:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise problem("nonpositive_count", name, "must be 1 or more, got 0")
        for name in ("history_weight", "split_rank_tolerance"):
            if not 0 <= getattr(self, name) <= 1:
                raise problem("fraction_range", name, "must be in [0, 1]")
        for name in ("update_step", "split_sampling_rate"):
            if not 0 < getattr(self, name) <= 1:
                raise problem("fraction_range", name, "must be in (0, 1]")
        return self


_COUNTS = (
    "recent_window",
    "history_weight_ramp_observations",
    "mutable_tree_tail",
    "recent_max_age_observations",
    "update_every",
    "eager_refresh_interval",
)


class SelectorConfig(Record):
    """Choice between laws by their causal errors; only with `causal_selector`."""

    alpha: Real = Field(
        default=0.4, description="Smoothing of recent errors, in (0, 1]."
    )
    margin: Real = Field(
        default=0.05, description="Advantage needed to switch, in [0, 1)."
    )
    warmup: U64 = Field(default=5, description="Observations before the first switch.")
    persistence: U64 = Field(default=1, description="Wins in a row needed to switch.")

    @model_validator(mode="after")
    def _check(self) -> SelectorConfig:
        if not 0 < self.alpha <= 1:
            raise problem("fraction_range", "alpha", "must be in (0, 1]")
        if not 0 <= self.margin < 1:
            raise problem("fraction_range", "margin", "must be in [0, 1)")
        return self
