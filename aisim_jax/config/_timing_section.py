"""How the passes of a worker are priced."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ._estimator import EstimatorConfig
from ._record import Name, NonNegative, Record, Text
from ._variants import ByType


EstimationMode = Literal["auto", "op_level", "fpm_interpolation", "fpm_regression"]
DatabaseMode = Literal["SILICON", "HYBRID", "EMPIRICAL", "SOL"]
Fallback = Literal["deny", "allow"]
TransferPolicy = Text | tuple[Text, ...]
DataRoots = Annotated[tuple[Name, ...], Field(min_length=1)]
INHERIT = "null = as the engine says"


class QuantModes(Record):
    """Precisions; null = from the checkpoint."""

    gemm_quant_mode: Text | None = Field(default=None, description="Dense layers.")
    moe_quant_mode: Text | None = Field(default=None, description="Experts.")
    kvcache_quant_mode: Text | None = Field(default=None, description="KV cache.")
    fmha_quant_mode: Text | None = Field(default=None, description="Attention.")
    comm_quant_mode: Text | None = Field(default=None, description="Collectives.")
    attention_backend: Text | None = Field(
        default=None, description="Attention kernel; null = the engine's choice."
    )


class DefaultTiming(QuantModes):
    """Prices of an estimator; every field overrides the engine's for this worker."""

    omitted: ClassVar[frozenset[str]] = frozenset({"forward_model"})

    type: Literal["default"] = Field(default="default", description="Kind.")
    estimation_mode: EstimationMode | None = Field(
        default=None, description=f"Estimator; {INHERIT}."
    )
    fallback_policy: Fallback | None = Field(
        default=None, description=f"May another estimator answer? {INHERIT}."
    )
    estimator_config: EstimatorConfig | None = Field(
        default=None, description=f"Tuning of the estimators; {INHERIT}."
    )
    systems_paths: DataRoots | None = Field(
        default=None, description=f"Ordered data roots; {INHERIT}."
    )
    database_mode: DatabaseMode | None = Field(
        default=None, description=f"Measured data, laws, or both; {INHERIT}."
    )
    transfer_policy: TransferPolicy | None = Field(
        default=None, description=f"What HYBRID may transfer; {INHERIT}."
    )
    forward_model: Literal["op_level", "fpm"] = Field(
        default="op_level", description="Old name of estimation_mode."
    )
    fpm_parquet_path: Text | None = Field(
        default=None, description="Old place of the interpolation table."
    )


class FixedTiming(Record):
    """Constant prices."""

    type: Literal["fixed"] = Field(description="Kind.")
    prefill_ms: NonNegative = Field(description="Pass that computes prompt tokens, ms.")
    decode_ms: NonNegative = Field(description="Pass that generates tokens, ms.")


class PolynomialTiming(Record):
    """Built-in polynomials of the tokens computed and of the cache in use."""

    type: Literal["polynomial"] = Field(description="Kind.")


INERT = (("forward_model", "op_level"),)

Timing = Annotated[
    DefaultTiming | FixedTiming | PolynomialTiming, ByType("default", INERT)
]
