"""Precision of every part of a deployment: inferred, limited by backend, overridden."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from .._errors import InvalidInputError
from ._checkpoint_quantization import FP8_LIKE
from ._families import MLA_MOE
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

    backend: "vllm", "sglang" or "trtllm"; version: of the backend
    sm_version: compute capability of the GPU, e.g. 90 (Hopper), 100 (Blackwell)
    gemm, moe, kv, fmha, comm: a mode name to use instead of the inferred one; None,
        "", "auto", "none" and "null" mean inferred. "int4" stands for "int4_wo".

    The checkpoint decides first; prefill attention is then limited to what the
    backend's kernels do (vLLM: bfloat16; SGLang on Hopper: bfloat16 for MLA).
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
    inferred_kv = _inferred_cache(spec)
    return Precision(
        gemm=wanted_gemm or inferred_gemm,
        moe=wanted_moe or inferred_moe,
        kv=_override("kv", kv, KV_BYTES) or inferred_kv,
        fmha=_override("fmha", fmha, FMHA_MODES)
        or _inferred_fmha(spec, inferred_kv, backend, sm_version),
        comm=_override("comm", comm, COMM_BYTES) or "half",
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


def _inferred_cache(spec: ModelSpec) -> str:
    facts = spec.checkpoint
    if spec.family in _FP8_CACHE_FAMILIES:
        return "fp8"
    if facts.kv is None:
        return "fp8" if facts.gemm in FP8_LIKE else "bfloat16"
    return facts.kv if facts.kv in KV_BYTES else "bfloat16"


def _inferred_fmha(
    spec: ModelSpec, cache: str, backend: str, sm_version: int | None
) -> str:
    fp8 = spec.checkpoint.kv != "none" and (
        spec.checkpoint.gemm in FP8_LIKE or cache == "fp8"
    )
    hopper_mla = backend == "sglang" and sm_version == 90 and spec.family in MLA_MOE
    if not fp8 or backend == "vllm" or hopper_mla or spec.family in _BF16_FMHA_FAMILIES:
        return "bfloat16"
    return "fp8"
