"""Golden operation records (JSON) -> the package's operation records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from aisim_jax import models as m


_ATTENTION = {
    "n": "heads",
    "n_kv": "kv_heads",
    "head_size": "head_dim",
    "window_size": "window",
    "kv_cache_dtype": "kv_quant",
    "fmha_quant_mode": "fmha_quant",
    "use_qk_norm": "qk_norm",
    "apply_rope": "rope",
    "cp_size": "cp",
}
_MLA = {
    "num_heads": "heads",
    "kv_cache_dtype": "kv_quant",
    "fmha_quant_mode": "fmha_quant",
    "gemm_quant_mode": "gemm_quant",
    "native_num_heads": "native_heads",
    "cp_size": "cp",
    "quant_mode": "quant",
    "is_pre": "pre",
}
_MOE = {
    "hidden_size": "hidden",
    "inter_size": "inter",
    "topk": "topk",
    "num_experts": "experts",
    "moe_tp_size": "moe_tp",
    "moe_ep_size": "moe_ep",
    "attention_dp_size": "attention_dp",
    "quant_mode": "quant",
    "workload_distribution": "distribution",
    "is_gated": "gated",
    "pre_dispatch": "pre",
    "backend": "backend",
    "moe_quant": "moe_quant",
    "attn_cp_size": "attn_cp",
    "is_context": "is_context",
}
_RECORDS: dict[str, tuple[type, dict[str, str]]] = {
    "Embedding": (m.Embedding, {"vocab_size": "vocab", "hidden_size": "hidden"}),
    "Elementwise": (m.Elementwise, {"bytes_per_token": "bytes_per_token"}),
    "Gemm": (
        m.Gemm,
        {
            "n": "n",
            "k": "k",
            "quant_mode": "quant",
            "low_precision_input": "low_precision_input",
        },
    ),
    "ContextAttention": (m.ContextAttention, _ATTENTION),
    "GenerationAttention": (m.GenerationAttention, _ATTENTION),
    "ContextMla": (m.ContextMla, _MLA),
    "GenerationMla": (m.GenerationMla, _MLA),
    "MlaBmm": (m.MlaBmm, _MLA),
    "MlaModuleContext": (m.MlaModule, _MLA),
    "MlaModuleGeneration": (m.MlaModule, _MLA),
    "Moe": (m.Moe, _MOE),
    "MoeDispatch": (m.MoeDispatch, _MOE),
    "CustomAllReduce": (m.AllReduce, {"hidden_size": "hidden", "tp_size": "gpus"}),
    "Nccl": (
        m.Nccl,
        {
            "hidden_size": "elements_per_token",
            "num_gpus": "gpus",
            "dtype": "dtype",
            "operation": "operation",
        },
    ),
    "P2P": (m.PointToPoint, {"hidden_size": "hidden", "pp_size": "pp"}),
}


def record(golden: dict[str, Any]) -> m.Operation:
    """One record; fields that the golden leaves out keep their neutral value."""
    ((kind, fields),) = golden.items()
    if kind == "Fallback":
        return m.Fallback(
            fields["name"], record(fields["primary"]), records(fields["fallback"])
        )
    if kind == "Overlap":
        return m.Overlap(
            fields["name"], records(fields["group_a"]), records(fields["group_b"])
        )
    cls, names = _RECORDS[kind]
    known = set(cls.__dataclass_fields__)
    values = {names[k]: v for k, v in fields.items() if names.get(k) in known}
    values |= {"name": fields["name"], "scale": fields["scale_factor"]}
    if "seq_split" in known:
        values["seq_split"] = fields.get("seq_split", 1)
    if "lanes" in known:
        values["lanes"] = tuple(fields["lane_order"])
    if "window" in known:
        values.setdefault("window", 0)
    if cls is m.MlaModule:
        values["is_context"] = kind == "MlaModuleContext"
    return cls(**values)


def records(golden: list[dict[str, Any]]) -> tuple[m.Operation, ...]:
    """All records of a list."""
    return tuple(record(item) for item in golden)


def leaves(operations: Iterable[m.Operation]) -> Iterator[Any]:
    """Operations of a list with the parts of each group in its place."""
    for operation in operations:
        if isinstance(operation, m.Fallback):
            yield from (operation.primary, *operation.alternative)
        elif isinstance(operation, m.Overlap):
            yield from (*operation.left, *operation.right)
        else:
            yield operation
