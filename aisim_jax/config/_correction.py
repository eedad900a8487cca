"""Controls of the multiplicative correction that observations put on an estimator."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from ._problems import problem
from ._record import U64, Flag, Real, Record
from ._regression import check_bins, check_observations


class CorrectionSampling(Record):
    """Which observations the correction keeps."""

    bins_per_axis: tuple[U64, ...] = Field(
        default=(4, 4), description="Two positive numbers of bins."
    )
    max_observations: U64 = Field(
        default=64, description="Observations kept per store, >= 1."
    )

    @model_validator(mode="after")
    def _check(self) -> CorrectionSampling:
        check_bins(self.bins_per_axis, 2, "bins_per_axis")
        return self


class FactorBounds(Record):
    """Limits of a correction factor; null = no limit."""

    min: Real | None = Field(default=0.5, description="Smallest factor, in (0, 1].")
    max: Real | None = Field(default=2.0, description="Largest factor, >= 1.")

    @model_validator(mode="after")
    def _check(self) -> FactorBounds:
        if self.min is not None and not 0 < self.min <= 1:
            raise problem(
                "factor_min_range", "min", f"must be in (0, 1], got {self.min}"
            )
        if self.max is not None and self.max < 1:
            raise problem(
                "factor_max_range", "max", f"must be 1 or more, got {self.max}"
            )
        return self


class CorrectionConfig(Record):
    """Controls of the correction."""

    omitted: ClassVar[frozenset[str]] = frozenset({"mode"})

    enabled: Flag = Field(default=True, description="Learn from observations.")
    mode: Literal["auto", "fixed", "dynamic_local", "hybrid"] = Field(
        default="auto", description="How a factor is chosen."
    )
    feature_space: Literal["legacy_workload"] = Field(
        default="legacy_workload", description="Axes of the correction grid."
    )
    sampling: CorrectionSampling = CorrectionSampling()
    min_observations: U64 = Field(
        default=5,
        description="Observations before the first factor, 1 to max_observations.",
    )
    factor_bounds: FactorBounds = FactorBounds()
    max_num_tokens: U64 = Field(
        default=8192, description="Upper end of the token axis, >= 1."
    )
    max_batch_size: U64 = Field(
        default=512, description="Upper end of the batch axis, >= 1."
    )
    max_kv_tokens: U64 = Field(
        default=2_000_000, description="Upper end of the KV axis, >= 1."
    )

    @model_validator(mode="after")
    def _check(self) -> CorrectionConfig:
        check_observations(self.min_observations, self.sampling.max_observations)
        for name in ("max_num_tokens", "max_batch_size", "max_kv_tokens"):
            if getattr(self, name) < 1:
                raise problem(
                    "correction_limit_range", name, "must be 1 or more, got 0"
                )
        return self
