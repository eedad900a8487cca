"""Measured tables of one system x backend x version, as dense float64 arrays.

Latencies are milliseconds exactly as measured (nothing raised, scaled or filled);
NaN marks points that were not measured. Axes are sorted ascending unless stated.
`origin` arrays are small integers that index `PerfTables.sources`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class RaggedGrid:
    """A 3-D table, latency_ms[i, j, k] at axes[0][i], axes[1][j], axes[2][k].

    Axis order: context attention and MLA (heads, full sequence, batch); generation
    attention and MLA (heads, batch, sequence).
    """

    axes: tuple[np.ndarray, np.ndarray, np.ndarray]
    latency_ms: np.ndarray
    origin: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class GemmTable:
    """GEMM curves latency_ms[site, m] at sites (n[site], k[site]) and the union of m.

    Sites are in first-seen order when the loaded table (a mapping m -> n -> k in load
    order) is walked m-major.
    """

    n: np.ndarray
    k: np.ndarray
    m: np.ndarray
    latency_ms: np.ndarray
    origin: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class MoeTable:
    """Expert curves latency_ms[curve, tokens] of one (precision, distribution).

    shapes[curve] = (topk, experts, hidden, inter, moe_tp, moe_ep).
    """

    shapes: np.ndarray
    tokens: np.ndarray
    latency_ms: np.ndarray
    origin: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class CommTable:
    """Collective curves latency_ms[rank count, size]; size in elements."""

    gpus: np.ndarray
    size: np.ndarray
    latency_ms: np.ndarray
    origin: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class QuantizeTable:
    """Scale kernels latency_ms[m, k] of precision fp8."""

    m: np.ndarray
    k: np.ndarray
    latency_ms: np.ndarray
    origin: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class BmmTable:
    """MLA batched matmul latency_ms[heads, tokens]."""

    heads: np.ndarray
    tokens: np.ndarray
    latency_ms: np.ndarray
    origin: np.ndarray


@dataclass(frozen=True, slots=True)
class AttentionKey:
    """One attention slice inside a lane. kv_heads 0 = plain MHA; fmha '' = generation."""

    fmha: str
    kv: str
    kv_heads: int
    head_dim: int
    window: int


@dataclass(frozen=True, slots=True)
class MlaKey:
    """One MLA slice. fmha '' = generation; gemm '' = granular kernel, not the module."""

    fmha: str
    kv: str
    gemm: str = ""
    native_heads: int = 0


MoeTables = Mapping[tuple[str, str], MoeTable]
AttentionTables = Mapping[str, Mapping[AttentionKey, RaggedGrid]]
