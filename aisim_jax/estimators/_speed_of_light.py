"""Speed-of-light times: the larger of arithmetic and memory (or link) time, in ms.

Every function returns the two parts separately, (compute_ms, memory_ms), so that a
measured latency can be re-scaled to other hardware: latency = max(parts) / utilisation.
Token counts may be integer arrays. Formulas follow the operation definitions: bytes and
FLOPs of one rank and one layer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._errors import InvalidInputError, MissingSystemFlopsError
from ..models import (
    KV_BYTES,
    QUANT_MODES,
    ContextAttention,
    ContextMla,
    GenerationAttention,
    GenerationMla,
    MlaBmm,
    MlaModule,
    Moe,
    Quant,
)
from ..systems import SystemSpec


MS = 1000.0
MLA_ROPE, MLA_LATENT, MLA_NOPE, MLA_VALUE = 64, 512, 128, 128
MLA_GEN_WIDTH = 2 * MLA_LATENT + MLA_ROPE  # 1088
MLA_CTX_WIDTH = MLA_NOPE + MLA_ROPE + MLA_VALUE  # 320
MLA_KV_WIDTH = MLA_LATENT + MLA_ROPE  # 576


class Bound(NamedTuple):
    """The two limits of an operation, ms; its speed of light is their maximum."""

    compute_ms: np.ndarray
    memory_ms: np.ndarray

    @property
    def ms(self) -> np.ndarray:
        return np.maximum(self.compute_ms, self.memory_ms)


def quant_mode(name: str) -> Quant:
    """Look a precision up. Raises InvalidInputError for an unknown name."""
    mode = QUANT_MODES.get(name)
    if mode is None:
        raise InvalidInputError(
            f"precision {name!r} is not known; use one of {', '.join(QUANT_MODES)}"
        )
    return mode


def tensor_flops(spec: SystemSpec, kind: str) -> float:
    """FLOP/s of the tensor cores for `kind`. Raises MissingSystemFlopsError."""
    rate = spec.tensor_flops.get(kind, 0.0)
    if not rate or rate <= 0:
        raise MissingSystemFlopsError(
            f"system {spec.name} has no {kind} tensor-core rate; choose a precision "
            f"among those it has: {', '.join(k for k, v in spec.tensor_flops.items() if v)}"
        )
    return rate


def gemm_bound(spec: SystemSpec, quant: str, m, n, k) -> Bound:
    """2mnk FLOP against (mn + mk + nk) elements at the weight width."""
    mode = quant_mode(quant)
    flops = tensor_flops(spec, mode.flops)
    m = np.asarray(m, np.float64)
    moved = mode.bytes * (m * n + m * k + np.multiply(n, k, dtype=np.float64))
    return Bound(2.0 * m * n * k / flops * MS, moved / spec.mem_bw_bytes_per_s * MS)


def moe_bound(spec: SystemSpec, op: Moe, tokens) -> Bound:
    """Experts: integer token shares, expert weights read once per active expert."""
    mode = quant_mode(op.quant)
    flops = tensor_flops(spec, mode.flops)
    gates = 3 if op.gated else 2
    routed = np.asarray(tokens, np.int64) * op.topk
    ops = routed * op.hidden * op.inter * gates * 2 // op.moe_ep // op.moe_tp
    local = routed // op.moe_ep
    moved = (
        local * op.hidden * 2
        + routed // op.moe_ep * op.inter * gates // op.moe_tp
        + op.hidden
        * op.inter
        * gates
        // op.moe_tp
        * np.minimum(op.experts // op.moe_ep, local)
    ) * mode.bytes
    return Bound(ops / flops * MS, moved / spec.mem_bw_bytes_per_s * MS)


def bmm_bound(spec: SystemSpec, op: MlaBmm, tokens) -> Bound:
    """Absorb or expand the latent: heads x 128 x 512 per token."""
    mode = quant_mode(op.quant)
    flops = tensor_flops(spec, mode.flops)
    t = np.asarray(tokens, np.float64)
    ops = 2.0 * t * op.heads * MLA_NOPE * MLA_LATENT
    moved = op.heads * (640.0 * t + 65536.0) * mode.bytes
    return Bound(ops / flops * MS, moved / spec.mem_bw_bytes_per_s * MS)


def memory_op_ms(spec: SystemSpec, moved_bytes):
    """Table-less memory pass at the achievable share of bandwidth plus a launch floor."""
    rate = spec.mem_bw_bytes_per_s * spec.mem_bw_efficiency
    return (np.asarray(moved_bytes, np.float64) / rate + spec.mem_latency_s) * MS


class ContextBound(NamedTuple):
    """Coefficients of prefill attention, ms; full = new + cached tokens.

    compute = b * (full^2 - prefix^2) * per_square, or b * full * per_windowed when a
    window (> 0) is shorter than full; memory = b * (new * per_new + full * per_full).
    """

    per_square: float
    per_windowed: float
    window: float
    per_new: float
    per_full: float


class GenerationBound(NamedTuple):
    """Coefficients of decode attention, ms, at KV length s.

    compute = b * (flat + per_kv * min(s - compute_skip, window)),
    memory = b * (rows + per_read * min(s - 1, window)) + fixed.
    """

    flat: float
    per_kv: float
    compute_skip: float
    window: float
    rows: float
    per_read: float
    fixed: float


def context_bound(
    spec: SystemSpec, op: ContextAttention | ContextMla | MlaModule, heads: int
) -> ContextBound:
    """Coefficients of `op` at `heads` query heads."""
    rate = spec.mem_bw_bytes_per_s
    kv_bytes = kv_width(op.kv_quant)
    flops = tensor_flops(spec, quant_mode(op.fmha_quant).flops)
    if isinstance(op, ContextAttention):
        dim = op.head_dim
        return ContextBound(
            per_square=2.0 * heads * dim / flops * MS,
            per_windowed=4.0 * op.window * heads * dim / flops * MS,
            window=float(op.window) if op.window > 0 else np.inf,
            per_new=4.0 * heads * dim / rate * MS,
            per_full=2.0 * kv_bytes * kv_heads_at(op, heads) * dim / rate * MS,
        )
    return ContextBound(
        per_square=heads * float(MLA_CTX_WIDTH) / flops * MS,
        per_windowed=0.0,
        window=np.inf,
        per_new=2.0 * heads * MLA_CTX_WIDTH / rate * MS,
        per_full=float(kv_bytes) * heads * MLA_CTX_WIDTH / rate * MS,
    )


def generation_bound(
    spec: SystemSpec, op: GenerationAttention | GenerationMla | MlaModule, heads: int
) -> GenerationBound:
    """Coefficients of `op` at `heads` query heads."""
    rate = spec.mem_bw_bytes_per_s
    kv_bytes = kv_width(op.kv_quant)
    flops = tensor_flops(spec, generation_flops_kind(spec, op.kv_quant))
    if isinstance(op, GenerationAttention):
        dim = op.head_dim
        return GenerationBound(
            flat=0.0,
            per_kv=4.0 * heads * dim / flops * MS,
            compute_skip=1.0,
            window=float(op.window) if op.window > 0 else np.inf,
            rows=4.0 * heads * dim / rate * MS,
            per_read=2.0 * kv_heads_at(op, heads) * dim * kv_bytes / rate * MS,
            fixed=0.0,
        )
    flat = rows = fixed = 0.0
    if isinstance(op, MlaModule):
        gemm = quant_mode(op.gemm_quant)
        gemm_flops = tensor_flops(spec, gemm.flops)
        flat = 4.0 * heads * MLA_NOPE * MLA_LATENT / gemm_flops * MS
        rows = 2.0 * heads * 640.0 * gemm.bytes / rate * MS
        fixed = 2.0 * heads * 65536.0 * gemm.bytes / rate * MS
    return GenerationBound(
        flat=flat,
        per_kv=2.0 * heads * MLA_GEN_WIDTH / flops * MS,
        compute_skip=0.0,
        window=np.inf,
        rows=rows + 2.0 * heads * MLA_GEN_WIDTH / rate * MS,
        per_read=float(MLA_KV_WIDTH) * kv_bytes / rate * MS,
        fixed=fixed,
    )


def generation_flops_kind(spec: SystemSpec, kv_quant: str) -> str:
    """Decode attention multiplies in fp8 when the cache is and the hardware can."""
    return "fp8" if kv_quant == "fp8" and spec.sm_version >= 89 else "bfloat16"


def kv_heads_at(op: ContextAttention | GenerationAttention, heads: int) -> int:
    """KV heads of a table point measured at `heads`: plain MHA scales with it."""
    return heads if op.kv_heads == op.heads else op.kv_heads


def kv_width(kv_quant: str) -> int:
    """Bytes of one cached element. Raises InvalidInputError for an unknown name."""
    if kv_quant not in KV_BYTES:
        raise InvalidInputError(
            f"KV cache precision {kv_quant!r} is not known; use one of "
            f"{', '.join(KV_BYTES)}"
        )
    return KV_BYTES[kv_quant]
