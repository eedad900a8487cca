"""Controls of the regression estimator: which samples it keeps and how it fits."""

from __future__ import annotations

from math import prod
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from ._problems import problem
from ._record import U32, U64, Flag, Real, Record, read_as


Axis = Literal[
    "attention",
    "moe",
    "n",
    "logN",
    "n2",
    "E",
    "P",
    "maxE",
    "maxP",
    "minP",
    "P2",
    "F",
    "nE",
    "logF",
    "meanE",
    "meanP",
    "cvE2",
    "cvP2",
    "logP",
]
DEFAULT_AXES: tuple[Axis, ...] = ("attention", "moe")
MAX_AXES = 6


def check_axes(axes: tuple[str, ...], field: str) -> None:
    """One to six distinct feature axes."""
    if not 1 <= len(axes) <= MAX_AXES:
        raise problem(
            "axes_count", field, f"takes 1 to {MAX_AXES} axes, got {len(axes)}"
        )
    if len(set(axes)) < len(axes):
        raise problem("axes_repeated", field, f"names an axis twice in {list(axes)}")


def check_bins(bins: tuple[int, ...], count: int, field: str) -> None:
    """One positive number of bins per axis, with a representable product."""
    if len(bins) != count or min(bins, default=1) < 1 or prod(bins) >= 2**64:
        raise problem(
            "bad_bins",
            field,
            f"needs {count} positive integers with a product below 2^64, got "
            f"{list(bins)}",
        )


def check_observations(smallest: int, largest: int) -> None:
    """At least one observation kept, and no more required than are kept."""
    if largest < 1:
        raise problem(
            "max_obs_range", "sampling.max_observations", "must be 1 or more, got 0"
        )
    if smallest < 1:
        raise problem("min_obs_range", "min_observations", "must be 1 or more, got 0")
    if smallest > largest:
        raise problem(
            "min_obs_exceeds_max",
            "min_observations",
            f"is {smallest}, above the {largest} observations that are kept; lower it "
            "or raise sampling.max_observations",
        )


class RegressionSampling(Record):
    """Which observations the regression keeps."""

    omitted: ClassVar[frozenset[str]] = frozenset({"axes"})

    axes: tuple[Axis, ...] = Field(
        default=DEFAULT_AXES,
        description="Feature axes of the retention grid, 1 to 6 distinct.",
    )
    bins_per_axis: tuple[U64, ...] = Field(
        default=(4, 4), description="Number of retention bins of each axis."
    )
    max_observations: U64 = Field(
        default=64,
        description="Observations kept per store; at least 32 with a spline fit.",
    )

    @model_validator(mode="after")
    def _check(self) -> RegressionSampling:
        check_axes(self.axes, "axes")
        check_bins(self.bins_per_axis, len(self.axes), "bins_per_axis")
        return self


class AlwaysUpdate(Record):
    """Refit after every observation."""

    kind: Literal["always"]


class ErrorThresholdUpdate(Record):
    """Refit when `trigger` of the last `window` predictions miss both tolerances."""

    kind: Literal["error_threshold"]
    relative_tolerance: Real = Field(description="Relative error allowed, >= 0.")
    absolute_tolerance_ms: Real = Field(description="Error allowed in ms, >= 0.")
    window: U64 = Field(description="Predictions looked at, > 0.")
    trigger: U64 = Field(description="Misses that start a refit, 1 to window.")
    cooldown: U64 = Field(description="Observations between refits, > 0.")
    startup_observations: U64 = Field(
        default=10, description="Observations during which every one refits, > 0."
    )

    @model_validator(mode="after")
    def _check(self) -> ErrorThresholdUpdate:
        for name in ("relative_tolerance", "absolute_tolerance_ms"):
            if getattr(self, name) < 0:
                raise problem("tolerance_range", name, "must be 0 or more")
        for name in ("window", "cooldown", "startup_observations"):
            if getattr(self, name) < 1:
                raise problem("nonpositive_count", name, "must be 1 or more, got 0")
        if not 1 <= self.trigger <= self.window:
            raise problem(
                "trigger_range",
                "trigger",
                f"must be 1 to the window of {self.window}, got {self.trigger}",
            )
        return self


class LinearFit(Record):
    """Shape of the linear fit."""

    feature_axes: tuple[Axis, ...] = Field(
        default=DEFAULT_AXES, description="Regressors, 1 to 6 distinct."
    )
    non_negative: Flag = Field(default=True, description="Refuse negative slopes.")
    update_policy: Annotated[
        AlwaysUpdate | ErrorThresholdUpdate, Field(discriminator="kind")
    ] = Field(default=AlwaysUpdate(kind="always"), description="When to refit.")

    @model_validator(mode="after")
    def _check(self) -> LinearFit:
        check_axes(self.feature_axes, "feature_axes")
        return self


class AdaptiveSearch(Record):
    """Look for new knots when recent errors grow."""

    kind: Literal["adaptive"]
    window: U64 = Field(default=16, description="Predictions looked at, > 0.")
    trigger: U64 = Field(
        default=8, description="Misses that start a search, 1 to window."
    )
    tolerance: Real = Field(default=0.05, description="Relative error allowed, > 0.")
    absolute_tolerance_ms: Real = Field(
        default=1.0, description="Error allowed in ms, >= 0."
    )
    cooldown: U64 = Field(default=64, description="Observations between searches, > 0.")

    @model_validator(mode="after")
    def _check(self) -> AdaptiveSearch:
        for name in ("window", "cooldown"):
            if getattr(self, name) < 1:
                raise problem("nonpositive_count", name, "must be 1 or more, got 0")
        if self.tolerance <= 0:
            raise problem("tolerance_range", "tolerance", "must be above 0")
        if self.absolute_tolerance_ms < 0:
            raise problem(
                "tolerance_range", "absolute_tolerance_ms", "must be 0 or more"
            )
        if not 1 <= self.trigger <= self.window:
            raise problem(
                "trigger_range",
                "trigger",
                f"must be 1 to the window of {self.window}, got {self.trigger}",
            )
        return self


class PeriodicSearch(Record):
    """Look for new knots every `step` observations."""

    kind: Literal["periodic"]
    step: U64 = Field(default=64, description="Observations between searches, > 0.")

    @model_validator(mode="after")
    def _check(self) -> PeriodicSearch:
        if self.step < 1:
            raise problem("nonpositive_count", "step", "must be 1 or more, got 0")
        return self


class SplineFit(Record):
    """Shape of the spline fit."""

    knots_per_axis: U64 = Field(default=2, description="2 or 3.")
    search: Annotated[AdaptiveSearch | PeriodicSearch, Field(discriminator="kind")] = (
        Field(
            default=AdaptiveSearch(kind="adaptive"),
            description="When to move the knots.",
        )
    )

    @model_validator(mode="after")
    def _check(self) -> SplineFit:
        if self.knots_per_axis not in (2, 3):
            raise problem(
                "spline_knots",
                "knots_per_axis",
                f"must be 2 or 3, got {self.knots_per_axis}",
            )
        return self


class RegressionFit(Record):
    """How the regression turns observations into a law."""

    omitted: ClassVar[frozenset[str]] = frozenset({"linear", "spline"})

    kind: Annotated[
        Literal["standardized_nnls", "spline"], read_as(linear="standardized_nnls")
    ] = Field(default="standardized_nnls", description="Law that is fitted.")
    singular_ridge_scale: Real = Field(
        default=1e-9, description="Ridge used when the normal matrix is singular, >= 0."
    )
    rebuild_interval: U32 | None = Field(
        default=None,
        description="Observations between rebuilds from scratch; null = never.",
    )
    linear: LinearFit | None = Field(
        default=None, description="Only with the linear kind."
    )
    spline: SplineFit | None = Field(
        default=None, description="Filled when kind = spline."
    )

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, value: Any) -> Any:
        if isinstance(value, dict) and value.get("kind") == "spline":
            return {**value, "spline": value.get("spline") or {}}
        return value

    @model_validator(mode="after")
    def _check(self) -> RegressionFit:
        if self.singular_ridge_scale < 0:
            raise problem("ridge_range", "singular_ridge_scale", "must be 0 or more")
        if self.rebuild_interval == 0:
            raise problem(
                "rebuild_interval_range", "rebuild_interval", "must be 1 or more"
            )
        foreign = self.linear if self.kind == "spline" else self.spline
        if foreign is not None:
            name = "linear" if self.kind == "spline" else "spline"
            raise problem(
                "fit_block_kind_mismatch", name, f"does not apply to kind {self.kind!r}"
            )
        return self


class RegressionConfig(Record):
    """Controls of the regression estimator."""

    sampling: RegressionSampling = RegressionSampling()
    min_observations: U64 = Field(
        default=5,
        description="Observations before the first answer, 1 to max_observations.",
    )
    fit: RegressionFit = RegressionFit()

    @model_validator(mode="after")
    def _check(self) -> RegressionConfig:
        largest = self.sampling.max_observations
        check_observations(self.min_observations, largest)
        if self.fit.kind == "spline":
            if largest < 32:
                raise problem(
                    "max_obs_range",
                    "sampling.max_observations",
                    f"must be 32 or more with a spline fit, got {largest}",
                )
            if self.sampling.axes != DEFAULT_AXES:
                raise problem(
                    "spline_axes_fixed",
                    "sampling.axes",
                    f"must be {list(DEFAULT_AXES)} with a spline fit, got "
                    f"{list(self.sampling.axes)}",
                )
        return self
