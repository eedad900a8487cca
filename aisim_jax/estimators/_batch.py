"""Batched prices of one model's layouts on one system and engine.

`OpLevelBatch` evaluates arrays of queries, each naming its lane (layout). It runs the
jitted kernels without the hold rule first, then only the unanswered queries with it.
Inputs and outputs are NumPy. Queries run in chunks of few sizes, so the compile key is
(stack shapes, static options, chunk size).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from .._precision import precision
from ..kernels import _steps
from ..kernels._steps import Options, StepStack
from ..kernels._work import (
    MixedWork,
    context_spans,
    decode_lengths,
    planned_work,
    scheduled_work,
)
from ..models import Backend, ModelSpec, Precision, build_operations
from ..models._layout import Layout
from ..systems import PerfTables
from ._compile import CompiledLane, compile_lanes
from ._hold_cells import stack_cells
from ._stack import TableWidths, phase_attention, stack_lanes
from ._token_curves import TokenPricer


START_WIDTHS = TableWidths(context=16384, generation=2048, logits=1024)
CHUNKS = (256, 4096)


class OpLevelSurface(eqx.Module):
    """The compiled arrays of many deployments, a pytree for use under jax transforms.

    `stack` leaves are jax arrays; `options` are static. All functions take one query
    (lane and counts) and are meant to be vmapped inside `aisim_jax.precision()`.
    """

    stack: StepStack
    options: Options = eqx.field(static=True)

    def prefill_ms(self, lane, batch, isl, prefix):
        """Prefill of `batch` requests of isl tokens, `prefix` of them cached; ms."""
        return _steps.prefill_ms(self.stack, lane, batch, isl, prefix, self.options)

    def decode_ms(self, lane, rows, kv_len):
        """One decode step of `rows` rows at KV length kv_len; ms."""
        return _steps.decode_ms(self.stack, lane, rows, kv_len, self.options)

    def mixed_ms(self, lane, context_tokens, rows, isl, osl, prefix):
        """One step of `context_tokens` prefill tokens and `rows` decode rows; ms."""
        work = planned_work(jnp, context_tokens, rows, isl, osl, prefix)
        return _steps.mixed_ms(self.stack, lane, *work, self.options)

    def scheduled_ms(self, lane, requests, new, cached, decodes, kv):
        """One rank's pass from its five scheduled sums; ms (0 for an empty pass)."""
        n, nd = jnp.maximum(requests, 1.0), jnp.maximum(decodes, 1.0)
        held = jnp.floor(cached / n)
        prefill = self.prefill_ms(lane, n, jnp.floor(new / n) + held, held)
        decode = self.decode_ms(lane, nd, jnp.floor(kv / nd))
        work = scheduled_work(jnp, requests, new, cached, decodes, kv)
        both = _steps.mixed_ms(self.stack, lane, *work, self.options)
        has_decode = (decodes > 0) | (kv > 0)
        alone = jnp.where(has_decode, decode, 0.0)
        return jnp.where(new > 0, jnp.where(has_decode, both, prefill), alone)


@partial(jax.jit, static_argnames=("function", "options"))
def _run(stack: StepStack, lane, counts, *, function, options: Options):
    return _steps.over_queries(function, options, len(counts))(stack, lane, *counts)


class OpLevelBatch:
    """Prices of `layouts` (lanes) of one model on one system, engine and version.

    `errors[lane]` is None or the first reason why a phase of the lane has no price; the
    queries that need that phase answer NaN.
    """

    def __init__(
        self,
        pricer: TokenPricer,
        layouts: Sequence[Layout],
        lanes: Sequence[CompiledLane],
        nextn: int,
    ) -> None:
        self.layouts = tuple(layouts)
        self.pricer = pricer
        self.lanes = tuple(lanes)
        self.nextn = nextn
        self.errors = tuple(lane.error for lane in lanes)
        self.phases = (
            phase_attention(self.lanes, True),
            phase_attention(self.lanes, False),
        )
        self.widths = START_WIDTHS
        self._restack()

    def _restack(self) -> None:
        self.host = stack_lanes(self.pricer, self.lanes, self.phases, self.widths)
        self._options = Options(
            hold=False,
            two_cuts=bool((self.host.context.cuts == 2).any())
            or bool((self.host.generation.cuts == 2).any()),
            context_parallel=bool((self.host.cp > 1).any()),
            averaging=bool(self.host.averaged.any()),
            analytic=self.pricer.analytic,
        )
        self._hold_rows = [
            sum(len(m.near) for m in phase.members) for phase in self.phases
        ]
        with precision():
            self._stack = jax.tree.map(jnp.asarray, self.host)

    def surface(self, *, hold: bool = True) -> OpLevelSurface:
        """The arrays as a pytree module; use it inside `aisim_jax.precision()`.

        Beyond the measured grid it answers where an earlier batched call, or
        `tabulate_hold`, has been; elsewhere NaN.
        """
        return OpLevelSurface(self._stack, self._options._replace(hold=hold))

    def ensure(self, context: float, generation: float, logits: float) -> None:
        """Grow the token tables to the next power of two that holds these counts."""
        wanted = TableWidths(
            *(
                max(have, 1 << int(need).bit_length())
                for have, need in zip(
                    self.widths, (context, generation, logits), strict=True
                )
            )
        )
        if wanted != self.widths:
            self.widths = wanted
            self._restack()

    def mixed_ms(
        self, lane, context_tokens, requests, isl, osl, prefix
    ) -> Float[np.ndarray, " n"]:
        """Mixed steps: `context_tokens` prefill tokens and `requests` decodes; ms."""
        lane, ctx, requests, isl, osl, prefix = _broadcast(
            lane, context_tokens, requests, isl, osl, prefix
        )
        rows = requests * (self.nextn + 1)
        return self._mixed(lane, planned_work(np, ctx, rows, isl, osl, prefix))

    def decode_ms(self, lane, requests, kv_len) -> Float[np.ndarray, " n"]:
        """One decode step of `requests` requests whose newest token sees kv_len; ms."""
        lane, requests, kv_len = _broadcast(lane, requests, kv_len)
        return self._decode(lane, requests * (self.nextn + 1), kv_len)

    def _decode(self, lane, rows, kv_len) -> np.ndarray:
        self.ensure(1, rows.max(initial=1), 1)

        def beyond(which):
            self._fill_generation(lane[which], rows[which], kv_len[which])

        return self._evaluate(_steps.decode_ms, lane, [rows, kv_len], beyond)

    def prefill_ms(self, lane, batch, isl, prefix) -> Float[np.ndarray, " n"]:
        """Prefill of `batch` requests of isl tokens, `prefix` (< isl) cached; ms."""
        lane, batch, isl, prefix = _broadcast(lane, batch, isl, prefix)
        new = isl - prefix
        self.ensure((batch * new).max(initial=1), 1, batch.max(initial=1))

        def beyond(which):
            self._fill_context(lane[which], batch[which], new[which], prefix[which])

        return self._evaluate(_steps.prefill_ms, lane, [batch, isl, prefix], beyond)

    def _mixed(self, lane, work: MixedWork) -> np.ndarray:
        self.ensure(work.tokens.max(initial=1), work.rows.max(initial=1), 2)

        def beyond(which):
            at, w = lane[which], MixedWork(*(field[which] for field in work))
            apart = self.phases[0].apart[at]
            self._fill_context(
                at,
                np.where(apart, np.maximum(w.batch, 1.0), 1.0),
                np.where(apart, w.new, w.tokens),
                np.where(apart, w.cached, w.prefix),
            )
            self._fill_generation(at, np.maximum(w.rows, 1.0), w.kv_len)

        return self._evaluate(_steps.mixed_ms, lane, list(work), beyond)

    def decode_sum_ms(
        self, lane, requests, isl, osl, stride: int = 32
    ) -> Float[np.ndarray, " n"]:
        """Decoding osl - 1 further tokens, one priced step per `stride` tokens; ms."""
        lane, requests, isl, osl = _broadcast(lane, requests, isl, osl)
        steps = np.maximum(np.ceil((osl - 1) / stride), 0).astype(np.int64)
        which = np.repeat(np.arange(lane.size), steps)
        first = np.cumsum(steps) - steps
        offset = (np.arange(which.size) - first[which]) * stride
        step = self.decode_ms(lane[which], requests[which], isl[which] + offset + 1)
        weight = np.minimum(stride, osl[which] - 1 - offset)
        return np.bincount(which, step * weight, minlength=lane.size)

    def scheduled_ms(
        self, lane, requests, new, cached, decodes, kv
    ) -> Float[np.ndarray, " n"]:
        """One rank's forward passes from their five scheduled sums; ms, 0 when empty."""
        lane, *counts = _broadcast(lane, requests, new, cached, decodes, kv)
        requests, new, cached, decodes, kv = counts
        out = np.zeros(lane.size)
        prefill, decode = new > 0, (decodes > 0) | (kv > 0)
        only = np.flatnonzero(decode & ~prefill)
        rows = np.maximum(decodes[only], 1.0)
        out[only] = self._decode(lane[only], rows, np.floor(kv[only] / rows))
        only = np.flatnonzero(prefill & ~decode)
        n = np.maximum(requests[only], 1.0)
        held = np.floor(cached[only] / n)
        out[only] = self.prefill_ms(lane[only], n, np.floor(new[only] / n) + held, held)
        both = np.flatnonzero(prefill & decode)
        out[both] = self._mixed(
            lane[both], scheduled_work(np, *(count[both] for count in counts))
        )
        return out

    def _fill_context(self, lane, batch, new, cached) -> None:
        for span_new, span_cached in context_spans(np, new, cached, self.host.cp[lane]):
            self._fill(0, lane, span_new + span_cached, batch)

    def _fill_generation(self, lane, rows, kv_len) -> None:
        for length in [*decode_lengths(np, kv_len), kv_len]:
            self._fill(1, lane, rows, length)

    def _fill(self, phase: int, lane, outer, inner) -> None:
        """Tabulate the hold cells of these grid coordinates."""
        attention = self.phases[phase]
        group = attention.group[lane]
        for g, member in enumerate(attention.members):
            here = group == g
            if here.any():
                member.fill(outer[here], inner[here])
        rows = sum(len(member.near) for member in attention.members)
        if rows == self._hold_rows[phase]:
            return
        self._hold_rows[phase] = rows
        cells, near = stack_cells(attention.members, attention.is_context)
        name = "generation" if phase else "context"
        with precision():
            grid = getattr(self._stack, name)._replace(
                cells=jnp.asarray(cells), near=jnp.asarray(near)
            )
        self._stack = self._stack._replace(**{name: grid})

    def _evaluate(
        self,
        function: Callable,
        lane: Int[np.ndarray, " n"],
        counts: Sequence,
        beyond: Callable[[np.ndarray], None],
    ) -> Float[np.ndarray, " n"]:
        out = self._pass(function, lane, counts, hold=False)
        again = np.flatnonzero(np.isnan(out))
        if again.size and not self.pricer.analytic:
            beyond(again)
            out[again] = self._pass(
                function, lane[again], [c[again] for c in counts], hold=True
            )
        return out

    def _pass(self, function, lane, counts, *, hold: bool) -> np.ndarray:
        size = lane.size
        chunk = next((c for c in CHUNKS if size <= c), CHUNKS[-1])
        out = np.empty(size)
        arrays = [lane.astype(np.int32), *counts]
        options = self._options._replace(hold=hold)
        with precision():
            for start in range(0, size, chunk):
                part = [a[start : start + chunk] for a in arrays]
                missing = chunk - part[0].size
                if missing:
                    part = [np.pad(a, (0, missing), mode="edge") for a in part]
                value = _run(
                    self._stack,
                    part[0],
                    tuple(part[1:]),
                    function=function,
                    options=options,
                )
                out[start : start + chunk] = value[: chunk - missing]
        return out


def _broadcast(lane, *counts) -> list[np.ndarray]:
    arrays = np.broadcast_arrays(np.asarray(lane, np.int64), *counts)
    return [
        np.atleast_1d(arrays[0]),
        *(np.atleast_1d(np.asarray(a, np.float64)) for a in arrays[1:]),
    ]


def compile_batch(
    tables: PerfTables,
    spec: ModelSpec,
    quant: Precision,
    layouts: Sequence[Layout],
    *,
    nextn: int = 0,
    analytic: bool = False,
    attention_backend: str | None = None,
) -> OpLevelBatch:
    """Compile every layout of a model into one stack.

    Layouts that cannot be built or priced stay in place with their reason in `errors`.
    `analytic` prices operations at their speed of light (database mode SOL).
    `attention_backend` pins a kernel family; None is the engine's own choice.
    """
    pricer = TokenPricer(tables, analytic=analytic)
    context_lanes = tables.lane_order("context", attention_backend, spec.architecture)
    generation_lanes = tables.lane_order(
        "generation", attention_backend, spec.architecture
    )

    def builder(layout: Layout):
        return lambda: build_operations(
            spec,
            quant,
            layout,
            cast(Backend, tables.backend),
            nextn=nextn,
            context_lanes=context_lanes,
            generation_lanes=generation_lanes,
        )

    lanes = compile_lanes(pricer, [builder(layout) for layout in layouts])
    return OpLevelBatch(pricer, layouts, lanes, nextn)
