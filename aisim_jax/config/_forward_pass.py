"""The canonical record of which engine is modelled and how it is estimated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from aisim_jax._backends import Backend

from ._consistency import check_consistency
from ._estimator import EstimatorConfig
from ._problems import problem
from ._record import U32, Flag, Record, Text, read_as
from ._speculation import Speculation, parse_speculation


ALIASES = {
    "tp_size": "tp",
    "pp_size": "pp",
    "attention_dp_size": "attention_dp",
    "gemm_dtype": "gemm_quant_mode",
    "moe_dtype": "moe_quant_mode",
    "fmha_dtype": "fmha_quant_mode",
    "kv_cache_dtype": "kvcache_quant_mode",
    "comm_dtype": "comm_quant_mode",
    "fpm_fmha_dtype": "fpm_fmha_quant_mode",
    "forward_model": "estimation_mode",
}

Transfer = Literal["xshape", "xquant", "xprofile", "xop"]
TRANSFER_PRESETS: dict[str, tuple[Transfer, ...]] = {
    "off": (),
    "conservative": ("xshape",),
    "balanced": ("xshape", "xquant"),
    "aggressive": ("xop", "xprofile", "xquant", "xshape"),
}


def _expand_transfer(value: Any) -> Any:
    if isinstance(value, str):
        return TRANSFER_PRESETS.get(value, (value,))
    return value


class ForwardPassConfig(Record):
    """Which engine is modelled, what role the worker plays, and which estimator answers.

    Immutable and hashable. Sizes are counts of GPUs; a name given together with its
    alias (`tp` and `tp_size`) is an error.
    """

    omitted: ClassVar[frozenset[str]] = frozenset({"cp_size", "encoder_parallel"})

    model: Text = Field(description="Hub name, local directory or config.json path.")
    system: Text = Field(description="Hardware system, e.g. h200_sxm.")
    backend: Backend = Field(description="Serving engine.")
    worker_type: Literal["prefill", "decode", "aggregated"] = Field(
        description="Role of the worker."
    )
    backend_version: Text | None = Field(
        default=None,
        description="Engine version, or current, previous, next; null = current.",
    )
    fpm_profile: dict[str, Any] | None = Field(
        default=None, description="Independent model profile; not served yet."
    )
    tp: U32 = Field(default=1, description="Tensor-parallel size (alias tp_size).")
    pp: U32 = Field(default=1, description="Pipeline-parallel size (alias pp_size).")
    attention_dp: U32 = Field(
        default=1, description="Attention data-parallel size (alias attention_dp_size)."
    )
    dcp: U32 | None = Field(
        default=None, description="Decode context-parallel size; divides tp."
    )
    cp_size: U32 | None = Field(
        default=None, description="Prefill context-parallel size."
    )
    moe_tp_size: U32 | None = Field(
        default=None,
        description="Expert tensor-parallel size; both MoE sizes or neither.",
    )
    moe_ep_size: U32 | None = Field(
        default=None,
        description="Expert-parallel size; tp*attention_dp*cp_size = "
        "moe_tp_size*moe_ep_size.",
    )
    gemm_quant_mode: Text | None = Field(
        default=None,
        description="Precision of dense layers; null = from the checkpoint.",
    )
    moe_quant_mode: Text | None = Field(
        default=None, description="Precision of experts; null = from the checkpoint."
    )
    fmha_quant_mode: Text | None = Field(
        default=None, description="Precision of attention; null = from the checkpoint."
    )
    fpm_fmha_quant_mode: Text | None = Field(
        default=None,
        description="Recorded attention label; only with fpm_interpolation.",
    )
    kvcache_quant_mode: Text | None = Field(
        default=None,
        description="Precision of the KV cache; null = from the checkpoint.",
    )
    comm_quant_mode: Text | None = Field(
        default=None,
        description="Precision of collectives; null = from the checkpoint.",
    )
    nextn: U32 = Field(default=0, description="Draft tokens per step, 0 to 5.")
    speculation: Annotated[Speculation | None, BeforeValidator(parse_speculation)] = (
        Field(
            default=None, description="Speculative decoding; kind none reads as null."
        )
    )
    kv_block_size: U32 | None = Field(
        default=None, description="KV block, tokens; carried."
    )
    decoder_replay: Flag = Field(default=False, description="Checked at construction.")
    estimation_mode: Annotated[
        Literal[
            "auto", "op_level", "fpm_interpolation", "fpm_regression", "fpm_learned"
        ],
        read_as(fpm="fpm_interpolation"),
    ] = Field(
        default="auto", description="Estimator (alias forward_model); fpm is accepted."
    )
    database_mode: Literal["SILICON", "HYBRID", "EMPIRICAL", "SOL", "SOL_FULL"] = Field(
        default="SILICON", description="Measured data, analytic laws, or both."
    )
    transfer_policy: Annotated[
        tuple[Transfer, ...] | None, BeforeValidator(_expand_transfer)
    ] = Field(
        default=None,
        description="What HYBRID may transfer: a list, or off, conservative, balanced, "
        "aggressive; null = all four.",
    )
    systems_paths: tuple[Text, ...] = Field(
        default=(),
        description="Ordered data roots; the word default is the packaged root.",
    )
    fallback_policy: Annotated[
        Literal["deny", "allow", "regression"], read_as(error="deny")
    ] = Field(
        default="deny", description="May another estimator answer when the mode cannot?"
    )
    estimator_config: EstimatorConfig = Field(
        default=EstimatorConfig(), description="Tuning controls of every estimator."
    )
    attention_backend: Text | None = Field(
        default=None, description="Attention kernel; null = the engine's choice."
    )
    moe_kernel_source: Text | None = Field(
        default=None, description="Expert kernel, verbatim."
    )
    moe_backend: Text | None = Field(
        default=None,
        description="default, deepep_moe or megamoe; the latter two need sglang.",
    )
    enable_eplb: Flag = Field(default=False, description="Expert load balancing.")
    wideep_num_slots: U32 | None = Field(
        default=None, description="Expert slots, positive."
    )
    enable_shared_layer: Flag | None = Field(
        default=None, description="Use measurements of sibling engine versions."
    )
    strict_provenance: Flag = Field(
        default=False, description="Refuse data that is not the version's own."
    )
    encoder_parallel: Literal["tp", "dp"] | None = Field(
        default=None, description="Parallelism of the vision tower."
    )

    @model_validator(mode="before")
    @classmethod
    def _rename(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        renamed = dict(value)
        for alias, name in ALIASES.items():
            if alias in renamed:
                if name in renamed:
                    raise problem(
                        "duplicate_field",
                        alias,
                        f"is another name of {name!r}, which is given too; keep one",
                    )
                renamed[name] = renamed.pop(alias)
        return renamed

    @model_validator(mode="after")
    def _check(self) -> ForwardPassConfig:
        check_consistency(self)
        return self
