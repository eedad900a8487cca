"""How the estimators are tuned: one block per estimator."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from ._correction import CorrectionConfig
from ._learned import LearnedConfig, SelectorConfig
from ._record import Flag, Record, Text, Weight
from ._regression import RegressionConfig


class FeatureWeights(Record):
    """Weights of the regression features; checked when a regression is built."""

    attention_kv_weight: Weight = Field(
        default=1.0, description="Weight of KV tokens read."
    )
    prefill_attention_pair_weight: Weight = Field(
        default=1.0, description="Weight of query-key pairs in prefill."
    )
    ffn_token_weight: Weight = Field(
        default=1.0, description="Weight of tokens in the FFN."
    )


class OpLevelConfig(Record):
    """Controls of the operation-level estimator."""

    omitted: ClassVar[frozenset[str]] = frozenset({"execution_profile"})

    execution_profile: Text | None = Field(
        default=None,
        description="Named execution profile of the engine; null = default.",
    )


class InterpolationConfig(Record):
    """Controls of the estimator that interpolates measured whole forward passes."""

    omitted: ClassVar[frozenset[str]] = frozenset(
        {"text_only", "fpm_parquet_path", "collect_coverage", "unrecorded_quant_modes"}
    )

    method: Literal["auto", "sol", "direct"] = Field(
        default="auto",
        description="auto becomes sol, or direct for a profile-only model.",
    )
    text_only: Flag = Field(default=False, description="Ignore the vision tower.")
    fpm_parquet_path: Text | None = Field(
        default=None, description="External table file."
    )
    collect_coverage: Flag = Field(
        default=False,
        description="Record how queries were answered; direct method and deny.",
    )
    unrecorded_quant_modes: tuple[Literal["fmha", "comm"], ...] = Field(
        default=(), description="Precisions that the table does not record."
    )


class EstimatorConfig(Record):
    """All tuning controls; every value is checked whatever the estimation mode."""

    omitted: ClassVar[frozenset[str]] = frozenset({"fpm_learned", "selector"})

    features: FeatureWeights = FeatureWeights()
    op_level: OpLevelConfig = OpLevelConfig()
    fpm_interpolation: InterpolationConfig = InterpolationConfig()
    fpm_regression: RegressionConfig = RegressionConfig()
    fpm_learned: LearnedConfig = LearnedConfig()
    selector: SelectorConfig = SelectorConfig()
    correction: CorrectionConfig = CorrectionConfig()
