"""Prices of the operations that depend on one integer: the tokens of the step.

`TokenPricer.curve(op, tokens)` returns unit latencies (one layer, no `scale`), ms, at
an integer array of token counts; NaN where no table serves the point.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, assert_never

import numpy as np
from jaxtyping import Float

from .._errors import MeasurementWarning, MissingPerfDataError
from ..models import (
    AllReduce,
    Elementwise,
    Embedding,
    Gemm,
    MlaBmm,
    Moe,
    MoeDispatch,
    Nccl,
    PointToPoint,
)
from ..systems import MoeTable, PerfTables, QuantizeTable
from ._buckets import power_of_two
from ._collectives import call_ms, calls_of, measured_curve
from ._gemm import GemmSites
from ._one_axis import Axis, axis_of
from ._ragged import lookup_clamped_2d
from ._speed_of_light import (
    MS,
    bmm_bound,
    gemm_bound,
    memory_op_ms,
    moe_bound,
    quant_mode,
    tensor_flops,
)


TokenOperation = (
    Embedding
    | Elementwise
    | Gemm
    | Moe
    | MoeDispatch
    | AllReduce
    | Nccl
    | PointToPoint
    | MlaBmm
)
LOW_LATENCY_TOKENS = 128
DYNAMIC_OF = {"fp8_static": "fp8"}  # measured with its scale kernels included


class TokenPricer:
    """Token-curve prices over the tables of one system x backend x version.

    `analytic` prices every operation at its speed of light (database mode SOL).
    """

    def __init__(self, tables: PerfTables, *, analytic: bool = False) -> None:
        self.tables = tables
        self.spec = tables.spec
        self.analytic = analytic
        self.cautions: list[str] = []  # what is known to mislead in the data used
        self.prepared: dict[object, Any] = {}  # attention slices, by operation
        self._gemms: dict[str, GemmSites | None] = {}

    def curve(self, op: TokenOperation, tokens: np.ndarray) -> Float[np.ndarray, " n"]:
        """Unit latency of `op` at integer `tokens` >= 1, ms, never negative.

        Raises MissingPerfDataError when no table can serve the operation at all, and
        MissingSystemFlopsError when the hardware lacks the precision.
        """
        tokens = split_tokens(op, np.asarray(tokens, np.int64))
        match op:
            case Embedding():
                out = self._memory(tokens * op.hidden * 2.0)
            case Elementwise():
                out = self._memory(tokens * op.bytes_per_token)
            case Gemm():
                out = self._gemm(op, tokens)
            case Moe():
                out = self._moe(op, tokens * op.attention_dp)
            case AllReduce() | Nccl() | MoeDispatch():
                out = np.zeros(tokens.shape)
                for call in calls_of(op, self.spec.sm_version):
                    out = out + call_ms(
                        self.tables, call, tokens, analytic=self.analytic
                    )
            case PointToPoint():
                out = self._point_to_point(op, tokens)
            case MlaBmm():
                out = self._bmm(op, tokens)
            case _:
                assert_never(op)
        return np.maximum(out, 0.0)

    def origin(self, op: TokenOperation, tokens: int) -> str:
        """How `curve` obtains its value: measured, interpolated, extrapolated, analytic."""
        at = int(split_tokens(op, np.int64(tokens)))
        if self.analytic or isinstance(op, Embedding | Elementwise | PointToPoint):
            return "analytic"
        match op:
            case Gemm():
                sites = self.gemm_sites(DYNAMIC_OF.get(op.quant, op.quant))
                if sites is None or not sites.reaches(op.n, op.k, at):
                    return "extrapolated"
                exact = op.quant not in DYNAMIC_OF and sites.measured_at(op.n, op.k, at)
                return "measured" if exact else "interpolated"
            case Moe():
                routed = at * op.attention_dp
                axis = self.expert_axis(op, routed)
                return "extrapolated" if axis is None else axis.origin(routed)
            case MlaBmm():
                axis, at_heads = self._bmm_axis(op)
                same = at_heads.heads == op.heads
                return axis.origin(at) if same else "extrapolated"
        origins = ["analytic"]
        for call in calls_of(op, self.spec.sm_version):
            axis, measured = measured_curve(self.tables, call)
            beyond = measured != call.gpus
            origins.append(
                "extrapolated" if beyond else axis.origin(at * call.elements)
            )
        return worst_origin(*origins)

    def _memory(self, moved_bytes: np.ndarray) -> np.ndarray:
        if self.analytic:
            return moved_bytes / self.spec.mem_bw_bytes_per_s * MS
        return memory_op_ms(self.spec, moved_bytes)

    def gemm_sites(self, quant: str) -> GemmSites | None:
        """The prepared GEMM table of a precision, or None where nothing was measured."""
        if quant not in self._gemms:
            table = self.tables.gemm(quant)
            for caution in self.tables.gemm_cautions(quant):
                self.cautions.append(caution)
                warnings.warn(caution, MeasurementWarning, stacklevel=2)
            self._gemms[quant] = (
                None if table is None else GemmSites(self.spec, quant, table)
            )
        return self._gemms[quant]

    def _gemm(self, op: Gemm, m: np.ndarray) -> np.ndarray:
        sol = gemm_bound(self.spec, op.quant, m, op.n, op.k).ms
        if self.analytic:
            return sol
        sites = self.gemm_sites(DYNAMIC_OF.get(op.quant, op.quant))
        if sites is None:
            have = ", ".join(self.tables.gemm_modes()) or "none"
            raise self._missing(
                f"a GEMM in precision {op.quant}", f"measured precisions: {have}"
            )
        out = sites.latency_ms(op.n, op.k, m)
        if op.quant not in DYNAMIC_OF:
            return out
        # Static scales need no scale kernels: take the measured ones out again.
        out = out - self._scale_kernel(self.tables.compute_scale(), m, op.k)
        if op.low_precision_input:
            table = self.tables.scale_matrix()
            clamped = self._scale_kernel(table, m, op.k)
            assert table is not None
            inside = np.clip(m, table.m[0], table.m[-1]) * float(
                np.clip(op.k, table.k[0], table.k[-1])
            )
            out = out - clamped * (m * float(op.k) / inside)
        return np.maximum(out, sol)

    def _scale_kernel(
        self, table: QuantizeTable | None, m: np.ndarray, k: int
    ) -> np.ndarray:
        if table is None:
            raise self._missing("fp8 scale kernels", "use gemm precision fp8 instead")
        return lookup_clamped_2d(table.m, table.k, table.latency_ms, m, k)

    def _moe(self, op: Moe, tokens: np.ndarray) -> np.ndarray:
        sol = moe_bound(self.spec, op, tokens).ms
        if self.analytic:
            return sol
        regular = self._expert_curve(op, self.tables.moe())
        fast = self._fast_expert_curve(op)
        if regular is None and fast is None:
            raise self._missing(
                f"{op.experts} experts, top-{op.topk}, hidden {op.hidden}, width "
                f"{op.inter}, moe_tp {op.moe_tp}, moe_ep {op.moe_ep} in {op.quant}",
                self._nearest_experts(op),
            )
        out = np.full(tokens.shape, np.nan)
        if regular is not None:
            out = self._on_expert_axis(op, regular, tokens, sol)
        if fast is not None:
            small = tokens <= LOW_LATENCY_TOKENS
            quick = self._on_expert_axis(op, fast, tokens, sol)
            out = np.where(small & ~np.isnan(quick), quick, out)
        return out

    def expert_axis(self, op: Moe, tokens: int) -> Axis | None:
        """The measured curve that serves `tokens` tokens over all attention ranks."""
        fast = self._fast_expert_curve(op)
        if fast is not None and tokens <= LOW_LATENCY_TOKENS:
            return fast
        return self._expert_curve(op, self.tables.moe())

    def _fast_expert_curve(self, op: Moe) -> Axis | None:
        if op.quant != "nvfp4" or not op.gated:
            return None
        return self._expert_curve(op, self.tables.moe_low_latency())

    def _expert_curve(
        self, op: Moe, pool: Mapping[tuple[str, str], MoeTable]
    ) -> Axis | None:
        table = pool.get((op.quant, op.distribution)) or pool.get((op.quant, "uniform"))
        if table is None:
            return None
        shape = (op.topk, op.experts, op.hidden, op.inter, op.moe_tp, op.moe_ep)
        hit = np.flatnonzero((table.shapes == np.array(shape)).all(axis=1))
        if hit.size == 0:
            return None
        return axis_of(table.tokens, table.latency_ms[hit[0]])

    def _on_expert_axis(self, op: Moe, axis: Axis, tokens, sol) -> np.ndarray:
        ends = moe_bound(self.spec, op, axis.keys[[0, -1]].astype(np.int64)).ms
        out = axis.at(tokens, sol, ends)
        if axis.keys.size == 1:
            out = np.where(tokens < axis.keys[0], np.nan, out)
        return out

    def _bmm(self, op: MlaBmm, tokens: np.ndarray) -> np.ndarray:
        if self.analytic:
            return bmm_bound(self.spec, op, tokens).ms
        tensor_flops(self.spec, quant_mode(op.quant).flops)
        axis, at_heads = self._bmm_axis(op)
        out = axis.at(
            tokens,
            bmm_bound(self.spec, at_heads, tokens).ms,
            bmm_bound(self.spec, at_heads, axis.keys[[0, -1]]).ms,
        )
        return out * (op.heads / at_heads.heads)

    def _bmm_axis(self, op: MlaBmm) -> tuple[Axis, MlaBmm]:
        """The token curve at the measured head count: this one or the next power of two."""
        table = self.tables.bmm(op.quant, op.pre) or self.tables.bmm("bfloat16", op.pre)
        heads = op.heads
        if table is not None and heads not in table.heads:
            heads = power_of_two(heads)
        if table is None or heads not in table.heads:
            raise self._missing(
                f"the MLA batched matmul at {op.heads} heads in {op.quant}",
                "use a tp whose heads per rank were measured",
            )
        row = table.latency_ms[np.flatnonzero(table.heads == heads)[0]]
        return axis_of(table.tokens, row), MlaBmm(
            op.name, op.scale, heads, op.quant, op.pre
        )

    def _point_to_point(self, op: PointToPoint, tokens: np.ndarray) -> np.ndarray:
        if op.pp <= 1:
            return np.zeros(tokens.shape)
        wire_s = tokens * op.hidden * 2.0 / self.spec.inter_node_bw_bytes_per_s
        fixed_s = 0.0 if self.analytic else self.spec.p2p_latency_s
        return (wire_s + fixed_s) * MS

    def _missing(self, what: str, remedy: str) -> MissingPerfDataError:
        tables = self.tables
        return MissingPerfDataError(
            f"no measured data for {what} on {self.spec.name} {tables.backend} "
            f"{tables.version}; {remedy}"
        )

    def _nearest_experts(self, op: Moe) -> str:
        found: set[str] = set()
        for (quant, _), table in self.tables.moe().items():
            key = np.array([op.topk, op.experts, op.hidden, op.inter])
            rows = table.shapes[(table.shapes[:, :4] == key).all(axis=1)]
            found |= {f"{quant} moe_tp {r[4]} moe_ep {r[5]}" for r in rows.tolist()}
        if found:
            return "measured for this shape: " + ", ".join(sorted(found)[:8])
        return "no layout or precision of this expert shape was measured"


def split_tokens(op: TokenOperation, tokens):
    """Tokens that one rank of a context-parallel group processes (rounded up)."""
    split = getattr(op, "seq_split", 1)
    return tokens if split == 1 else -(-tokens // split)


# A sum is named after its least certain part; formulas only where nothing else is in it.
CERTAINTY = ("analytic", "measured", "interpolated", "extrapolated")


def worst_origin(*origins: str) -> str:
    """The least certain of several origins; any table beats a formula."""
    return max(origins, key=CERTAINTY.index)
