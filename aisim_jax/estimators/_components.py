"""Operations taken apart by what bounds them, for derivatives in the hardware.

`hardware_surface` keeps, beside the compiled stack, every token operation's curve with
its limits, and every grid's values; `HardwareSurface.at(rates)` puts them together again
on other hardware as an ordinary surface, differentiably.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._errors import AisimError
from .._precision import precision
from ..kernels import (
    CONSTANT,
    INTER_NODE,
    INTRA_NODE,
    MEMORY,
    GridComponents,
    HardwareRates,
    Options,
    StepStack,
    TokenComponents,
    moved_grid,
    slowdowns,
    token_table_ms,
)
from ..models import (
    AllReduce,
    Elementwise,
    Embedding,
    Gemm,
    GenerationAttention,
    GenerationMla,
    MlaBmm,
    MlaModule,
    Moe,
    MoeDispatch,
    Nccl,
    PointToPoint,
)
from ..systems import SystemSpec
from ._attention import AttentionTable, attention_extra_ms
from ._batch import OpLevelBatch
from ._collectives import call_ms, calls_of
from ._lowering import AttentionTerm, Entry, OverlapTerm, TokenTerm
from ._speed_of_light import (
    MS,
    Bound,
    bmm_bound,
    gemm_bound,
    generation_flops_kind,
    moe_bound,
    quant_mode,
)
from ._stack import shared_values
from ._surface import OpLevelSurface
from ._token_curves import TokenOperation, TokenPricer, split_tokens


TOKENS, ROWS, REQUESTS = 8192, 1024, 256  # reach of token tables unless asked
RATE_OF = {"bfloat16": 2, "int8": 3, "fp8": 4, "fp4": 5}


def hardware_rates(spec: SystemSpec) -> HardwareRates:
    """The rates of a system as the differentiable record."""
    return HardwareRates._make(
        [
            spec.mem_bw_bytes_per_s,
            *(float(spec.tensor_flops.get(kind) or 0.0) for kind in RATE_OF),
            spec.intra_node_bw_bytes_per_s,
            spec.inter_node_bw_bytes_per_s,
        ]
    )


class HardwareSurface(eqx.Module):
    """Compiled layouts as a function of hardware rates (utilisation frozen).

    Use inside `aisim_jax.precision()`: `surface.at(rates)` is an `OpLevelSurface`;
    gradients flow from its prices to the rates.
    """

    reference: HardwareRates
    stack: StepStack
    context: TokenComponents
    generation: TokenComponents
    logits: TokenComponents
    grids: tuple[GridComponents, GridComponents]
    options: Options = eqx.field(static=True)

    def at(self, rates: HardwareRates) -> OpLevelSurface:
        """The surface on hardware with these rates."""
        slow = slowdowns(self.reference, rates)
        moved = self.stack._replace(
            context_tokens_ms=token_table_ms(self.context, slow),
            generation_tokens_ms=token_table_ms(self.generation, slow),
            logits_ms=token_table_ms(self.logits, slow),
            context=moved_grid(self.stack.context, self.grids[0], slow, context=True),
            generation=moved_grid(
                self.stack.generation, self.grids[1], slow, context=False
            ),
        )
        return OpLevelSurface(moved, self.options)


def hardware_surface(
    batch: OpLevelBatch,
    *,
    tokens: int = TOKENS,
    rows: int = ROWS,
    requests: int = REQUESTS,
    hold: bool = True,
) -> HardwareSurface:
    """Take the compiled layouts of `batch` apart by what bounds each operation.

    Token tables reach `tokens` prefill tokens, `rows` decode rows and `requests` prefill
    requests (inclusive); beyond them prices are NaN. Beyond the measured grid it answers
    where `batch` has answered before.
    """
    spec, pricer = batch.pricer.spec, batch.pricer
    lanes = batch.lanes
    contexts = [lane.context for lane in lanes]
    generations = [lane.generation for lane in lanes]
    with precision():
        stack = batch.surface().stack
        count = stack.cp.shape[0]
        parts = [
            _components(pricer, contexts, tokens, count, logits=False),
            _components(pricer, generations, rows, count, logits=None),
            _components(pricer, contexts, requests, count, logits=True),
        ]
        parts = [jax.tree.map(jnp.asarray, part) for part in parts]
        grids = tuple(
            GridComponents(
                jnp.asarray(shared_values(phase, count)),
                jnp.asarray(_bound_rates(phase.tables, phase.is_context, spec, count)),
                jnp.asarray(_fixed_extras(phase.tables, spec, count)),
            )
            for phase in batch.phases
        )
        return HardwareSurface(
            HardwareRates._make(jnp.float64(r) for r in hardware_rates(spec)),
            stack,
            parts[0],
            parts[1],
            parts[2],
            (grids[0], grids[1]),
            batch.surface(hold=hold).options,
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Curve:
    """One additive piece of a token operation (unit latency, ms)."""

    measured: np.ndarray
    bound: Bound
    link: np.ndarray
    fixed: float = 0.0
    compute_rate: int = CONSTANT
    link_rate: int = CONSTANT


def _curves(
    pricer: TokenPricer, op: TokenOperation, tokens: np.ndarray
) -> list[_Curve]:
    spec = pricer.spec
    at = split_tokens(op, tokens)
    none = np.zeros(tokens.size)
    match op:
        case Gemm() | Moe() | MlaBmm():
            if isinstance(op, Gemm):
                bound = gemm_bound(spec, op.quant, at, op.n, op.k)
            elif isinstance(op, Moe):
                bound = moe_bound(spec, op, at * op.attention_dp)
            else:
                bound = bmm_bound(spec, op, at)
            rate = RATE_OF[quant_mode(op.quant).flops]
            measured = pricer.curve(op, tokens)
            return [_Curve(measured, bound, none, compute_rate=rate)]
        case Embedding() | Elementwise():
            measured = pricer.curve(op, tokens)
            fixed = 0.0 if pricer.analytic else spec.mem_latency_s * MS
            return [_Curve(measured, Bound(none, measured - fixed), none, fixed)]
        case PointToPoint():
            measured = pricer.curve(op, tokens)
            fixed = 0.0 if pricer.analytic or op.pp <= 1 else spec.p2p_latency_s * MS
            return [
                _Curve(
                    measured,
                    Bound(none, none),
                    measured - fixed,
                    fixed,
                    link_rate=INTER_NODE,
                )
            ]
        case AllReduce() | Nccl() | MoeDispatch():
            out = []
            for call in calls_of(op, spec.sm_version):
                measured = call_ms(pricer.tables, call, at, analytic=pricer.analytic)
                inside = call.gpus <= spec.gpus_per_node
                rate = INTRA_NODE if inside else INTER_NODE
                out.append(
                    _Curve(measured, Bound(none, none), measured, link_rate=rate)
                )
            return out


def _components(
    pricer: TokenPricer,
    phases: Sequence[tuple[Entry, ...] | AisimError],
    last: int,
    count: int,
    *,
    logits: bool | None,
) -> TokenComponents:
    """Stack the token terms of one phase; `logits` selects them (None = all)."""
    tokens = np.arange(1, last + 1)
    lanes = [
        []
        if isinstance(entries, AisimError)
        else [
            (side, term.op.scale, curve)
            for entry in entries
            for side, term in _token_terms(entry)
            if logits is None or term.logits == logits
            for curve in _curves(pricer, term.op, tokens)
        ]
        for entries in phases
    ]
    terms = max([len(lane) for lane in lanes] + [1])
    arrays = {
        name: np.zeros((count, terms, last + 1))
        for name in ("measured_ms", "compute_ms", "memory_ms", "link_ms")
    }
    fixed = np.zeros((count, terms))
    compute_rate = np.zeros((count, terms), np.int32)
    link_rate, side_of = compute_rate.copy(), compute_rate.copy()
    for i, phase in enumerate(phases):
        if isinstance(phase, AisimError):
            arrays["measured_ms"][i] = np.nan
    for i, lane in enumerate(lanes):
        for t, (side, scale, curve) in enumerate(lane):
            arrays["measured_ms"][i, t, 1:] = scale * curve.measured
            arrays["compute_ms"][i, t, 1:] = scale * curve.bound.compute_ms
            arrays["memory_ms"][i, t, 1:] = scale * curve.bound.memory_ms
            arrays["link_ms"][i, t, 1:] = scale * curve.link
            fixed[i, t] = scale * curve.fixed
            compute_rate[i, t], link_rate[i, t] = curve.compute_rate, curve.link_rate
            side_of[i, t] = side
    return TokenComponents(
        **arrays,
        fixed_ms=fixed,
        compute_rate=compute_rate,
        link_rate=link_rate,
        side=side_of,
    )


def _token_terms(entry: Entry) -> list[tuple[int, TokenTerm]]:
    out: list[tuple[int, TokenTerm]] = []
    for term in entry.terms:
        if isinstance(term, OverlapTerm):
            out += [(1, part) for part in term.left]
            out += [(2, part) for part in term.right]
        elif not isinstance(term, AttentionTerm):
            out.append((0, term))
    return out


def _bound_rates(
    tables: Sequence[AttentionTable | None],
    is_context: bool,
    spec: SystemSpec,
    count: int,
) -> np.ndarray:
    """Which rate bounds each speed-of-light coefficient, [lanes, coef]."""
    rates = np.zeros((count, 5 if is_context else 7), np.int32)
    for i, table in enumerate(tables):
        if table is None:
            continue
        op = table.op
        if is_context and not isinstance(op, GenerationAttention | GenerationMla):
            compute = RATE_OF[quant_mode(op.fmha_quant).flops]
            rates[i] = (compute, compute, CONSTANT, MEMORY, MEMORY)
            continue
        compute = RATE_OF[generation_flops_kind(spec, op.kv_quant)]
        flat = compute
        if isinstance(op, MlaModule):
            flat = RATE_OF[quant_mode(op.gemm_quant).flops]
        rates[i] = (flat, compute, CONSTANT, CONSTANT, MEMORY, MEMORY, MEMORY)
    return rates


def _fixed_extras(
    tables: Sequence[AttentionTable | None], spec: SystemSpec, count: int
) -> np.ndarray:
    """Launch part of the constant kernels beside attention, ms: what is left at
    unlimited bandwidth."""
    endless = replace(spec, mem_bw_bytes_per_s=np.inf)
    fixed = np.zeros(count)
    for i, table in enumerate(tables):
        if table is not None:
            fixed[i] = attention_extra_ms(endless, table.op, analytic=table.analytic)
    return fixed
