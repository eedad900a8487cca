"""The routed-expert group that all mixture-of-experts families share."""

from __future__ import annotations

from .._backends import Backend
from ._layout import Layout
from ._operations import Gemm, Moe, MoeDispatch, Operation
from ._precision import Precision
from ._spec import ModelSpec


def routed_experts(
    spec: ModelSpec,
    precision: Precision,
    layout: Layout,
    backend: Backend,
    *,
    phase: str,
    scale: float,
    distribution: str,
    dispatch_knows_phase: bool = False,
) -> list[Operation]:
    """Router, dispatch, experts, combine of `scale` layers.

    distribution: load skew of the experts, e.g. "power_law_1.2"
    dispatch_knows_phase: whether the collectives are told that they decode
    """
    is_context = phase == "context" or not dispatch_knows_phase

    def dispatch(pre: bool) -> MoeDispatch:
        return MoeDispatch(
            name=f"{phase}_moe_{'pre' if pre else 'post'}_dispatch",
            scale=scale,
            hidden=spec.hidden,
            topk=spec.topk,
            experts=spec.experts,
            moe_tp=layout.moe_tp,
            moe_ep=layout.moe_ep,
            attention_dp=layout.dp,
            pre=pre,
            backend=backend,
            moe_quant=precision.moe,
            is_context=is_context,
        )

    return [
        Gemm(
            f"{phase}_router_gemm", scale, spec.experts, spec.hidden, quant="bfloat16"
        ),
        dispatch(pre=True),
        Moe(
            name=f"{phase}_moe",
            scale=scale,
            hidden=spec.hidden,
            inter=spec.moe_intermediate,
            topk=spec.topk,
            experts=spec.experts,
            moe_tp=layout.moe_tp,
            moe_ep=layout.moe_ep,
            attention_dp=layout.dp,
            quant=precision.moe,
            distribution=distribution,
        ),
        dispatch(pre=False),
    ]
