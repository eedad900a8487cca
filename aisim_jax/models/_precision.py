"""Precision of every part of a deployment: inferred, limited by backend, overridden."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from .._errors import InvalidInputError
from ._quantization import COMM_BYTES, KV_BYTES
from ._spec import ModelSpec


GEMM_MODES = (
    "bfloat16",
    "int8_wo",
    "int4_wo",
    "fp8",
    "fp8_static",
    "fp8_block",
    "fp8_ootb",
    "sq",
    "nvfp4",
    "nvfp4_wo",
    "w4a16_nvfp4",
)
MOE_MODES = (
    "bfloat16",
    "int4_wo",
    "fp8",
    "fp8_block",
    "nvfp4",
    "nvfp4_wo",
    "w4a16_nvfp4",
    "w4afp8",
    "w4a16_mxfp4",
    "w4a16_mxfp4_cutlass",
    "w4a16_mxfp4_humming",
    "w4a8_mxfp4_mxfp8",
    "w4a8_mxfp4_mxfp8_trtllm",
    "w4a8_mxfp4_mxfp8_cutlass",
)
FMHA_MODES = ("bfloat16", "fp8", "fp8_block")

_SAME_AS_INFERRED = frozenset({"", "auto", "none", "null"})
_ALIASES = {"int4": "int4_wo", "int8": "int8_wo"}

# Families whose prefill attention only exists in bfloat16 kernels.
_BF16_FMHA_FAMILIES = frozenset({"DEEPSEEKV32", "DEEPSEEKV4"})
_FP8_FMHA_FAMILIES = frozenset({"DEEPSEEKV41"})
# SGLang releases whose Hopper MLA kernels only exist in bfloat16 (None = current).
_BF16_MLA_SGLANG = frozenset({None, "0.5.14"})
# Families that keep their cache in fp8 whatever the weights are.
_FP8_CACHE_FAMILIES = frozenset({"DEEPSEEKV4", "DEEPSEEKV41"})


@dataclass(frozen=True, slots=True)
class Precision:
    """Modes of the linear layers, experts, KV cache, prefill attention, collectives."""

    gemm: str
    moe: str
    kv: str
    fmha: str
    comm: str = "half"


def resolve_precision(
    spec: ModelSpec,
    backend: str,
    version: str | None = None,
    sm_version: int | None = None,
    *,
    gemm: str | None = None,
    moe: str | None = None,
    kv: str | None = None,
    fmha: str | None = None,
    comm: str | None = None,
) -> Precision:
    """Precision of `spec` on a backend.

    backend: "vllm", "sglang" or "trtllm"
    version: resolved version of the backend, None for the current one
    sm_version: compute capability of the GPU, e.g. 90 (Hopper), 100 (Blackwell)
    gemm, moe, kv, fmha, comm: a mode name to use instead of the inferred one; None,
        "", "auto", "none" and "null" mean inferred. "int4" stands for "int4_wo".

    The checkpoint decides first; prefill attention is then limited to what the
    backend's kernels do (vLLM: bfloat16; SGLang 0.5.14 on Hopper: bfloat16 for
    MLA). Overriding one mode does not change what is inferred for the others.
    """
    facts = spec.checkpoint
    wanted_gemm = _override("gemm", gemm, GEMM_MODES)
    wanted_moe = _override("moe", moe, MOE_MODES)
    if facts.unknown and not (wanted_gemm and (wanted_moe or not spec.is_moe)):
        raise InvalidInputError(
            f"{spec.name}: quantisation {facts.unknown!r} is not known; name the modes "
            f"yourself with gemm (one of {', '.join(GEMM_MODES)}) and moe."
        )
    inferred_gemm, inferred_moe = facts.gemm, facts.moe
    if backend == "vllm" and spec.family == "NEMOTRONH":
        inferred_gemm = inferred_gemm.replace("w4a16_nvfp4", "nvfp4")
        inferred_moe = inferred_moe.replace("w4a16_nvfp4", "nvfp4")
    return Precision(
        gemm=wanted_gemm or _usable("gemm", spec, inferred_gemm, GEMM_MODES),
        moe=wanted_moe or _usable("moe", spec, inferred_moe, MOE_MODES),
        kv=_override("kv", kv, KV_BYTES)
        or ("fp8" if spec.family in _FP8_CACHE_FAMILIES else facts.kv),
        fmha=_override("fmha", fmha, FMHA_MODES)
        or _inferred_fmha(spec, backend, version, sm_version),
        comm=_override("comm", comm, COMM_BYTES) or "half",
    )


def _usable(part: str, spec: ModelSpec, mode: str, known: Collection[str]) -> str:
    if mode in known:
        return mode
    if part == "moe" and not spec.is_moe:
        return "bfloat16"
    raise InvalidInputError(
        f"{spec.name}: no {part} kernels exist for its {mode} weights; name another "
        f"mode with {part} (one of {', '.join(known)})."
    )


def _override(part: str, name: str | None, known: Collection[str]) -> str | None:
    if name is None or name.strip().lower() in _SAME_AS_INFERRED:
        return None
    mode = name.strip().lower()
    mode = mode if mode in known else _ALIASES.get(mode, mode)
    if mode not in known:
        raise InvalidInputError(
            f"{part} precision {name!r} is not known; use one of {', '.join(known)}, or "
            "auto."
        )
    return mode


def _inferred_fmha(
    spec: ModelSpec, backend: str, version: str | None, sm_version: int | None
) -> str:
    if backend == "vllm" or spec.family in _BF16_FMHA_FAMILIES:
        return "bfloat16"
    mla_on_hopper = spec.family == "DEEPSEEK" and sm_version == 90
    if backend == "sglang" and version in _BF16_MLA_SGLANG and mla_on_hopper:
        return "bfloat16"
    return "fp8" if spec.family in _FP8_FMHA_FAMILIES else spec.checkpoint.fmha
