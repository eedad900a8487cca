"""Attention and feed-forward on separate nodes: checked, and not simulated yet."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ._domains import Choices, CountDomain
from ._record import Count, Flag, Positive, Record
from ._variants import ByShape


Pipeline = Literal["optimistic", "conservative", "serial"]
ExpertRanks = Count | Literal["n_f_nodes", "ffn_tp"]


class AfdSettings(Record):
    """Which phases are split, and how."""

    phase: Literal["prefill", "decode", "both"] = Field(description="Which phases.")
    combined_with_pd: Flag = Field(description="Also split prefill from decode.")
    comm_overhead_factor: Positive = Field(default=1.0, description="Factor of times.")
    boundary_on_attn: Flag = Field(
        default=True, description="The boundary layers run on attention nodes."
    )


class AfdPrediction(AfdSettings):
    """One split."""

    n_a_nodes: Count = Field(description="Attention nodes.")
    n_f_nodes: Count = Field(description="Feed-forward nodes.")
    tp_a: Count = Field(description="Tensor-parallel ranks of attention.")
    a_batch_size: Count = Field(description="Requests of an attention rank.")
    f_moe_ep_size: Count = Field(default=1, description="Expert-parallel ranks.")
    num_microbatches: Count = Field(default=3, description="Batches in flight.")
    pipeline_model: Pipeline = Field(
        default="optimistic", description="How batches overlap."
    )


class AfdRecommendation(AfdSettings):
    """Searched splits."""

    a_batch_size: CountDomain = Field(description="Requests of an attention rank.")
    tp_a: CountDomain | None = Field(
        default=None, description="Tensor-parallel ranks of attention."
    )
    f_moe_ep_size: Annotated[ExpertRanks | Choices[ExpertRanks], ByShape()] | None = (
        Field(default=None, description="Expert-parallel ranks.")
    )
    num_microbatches: CountDomain = Field(
        default=Choices[Count](choices=(2, 3, 4)), description="Batches in flight."
    )
    pipeline_model: Annotated[Pipeline | Choices[Pipeline], ByShape()] = Field(
        default="optimistic", description="How batches overlap."
    )
    max_af_ratio: Positive = Field(
        default=4.0, description="Attention nodes per feed-forward node, at most."
    )
    max_candidates: Count = Field(default=10000, description="Splits, at most.")
