"""Batched prices of one model's layouts on one system and engine.

`OpLevelBatch` evaluates arrays of queries, each naming its lane (layout), inside the
measured grid and beyond it with different kernels. Inputs and outputs are NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import jax
import numpy as np
from jaxtyping import Float, Int

import aisim_jax.kernels as kernels

from .._precision import precision
from ..kernels import (
    NARROW,
    MixedWork,
    Options,
    context_spans,
    decode_lengths,
    decode_span,
    planned_work,
    scheduled_work,
)
from ..models import Backend, Layout, ModelSpec, Precision, build_operations
from ..systems import PerfTables
from ._buckets import power_of_two
from ._compile import CompiledLane, compile_lanes
from ._evaluation import FEW, FEW_CHUNK, MANY_CHUNK, run_chunks
from ._grid_range import inner_range
from ._hold_cells import BATCH_OCTAVES, SEQUENCE_OCTAVES, stack_cells
from ._scalar import ScalarSteps
from ._stack import TableWidths, phase_attention, stack_lanes
from ._surface import OpLevelSurface
from ._token_curves import TokenPricer


BLOCK = 1 << 17  # queries priced at once
START_WIDTHS = TableWidths(context=16384, generation=2048, logits=1024)


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
        self._alive = tuple(
            np.array([table is not None for table in phase.tables], bool)
            for phase in self.phases
        )
        self._sparse = np.zeros(len(self.lanes), bool)
        for phase in self.phases:
            few = np.array([not member.usable for member in phase.members] or [False])
            self._sparse |= few[phase.group]
        self.widths = START_WIDTHS
        self._restack()

    def _restack(self) -> None:
        self.host = stack_lanes(self.pricer, self.lanes, self.phases, self.widths)
        self._scalars: dict[int, ScalarSteps] = {}
        self._limits: tuple[np.ndarray, np.ndarray] | None = None
        self._options = Options(
            grid=True,
            hold=False,
            near=NARROW,
            unrolled=False,
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
            # Not asarray: it compiles a program per shape.
            self._stack = jax.device_put(self.host)

    def surface(self, *, hold: bool = True) -> OpLevelSurface:
        """The arrays as a pytree module; use it inside `aisim_jax.precision()`.

        Beyond the measured grid it answers where an earlier batched call, or
        `tabulate`, has been; elsewhere NaN.
        """
        options = self._options._replace(hold=hold, near=self._widest())
        return OpLevelSurface(self._stack, options)

    def ensure(self, context: float, generation: float, logits: float) -> None:
        """Grow the token tables to the next power of two that holds these counts."""
        wanted = TableWidths(
            *(
                max(have, power_of_two(int(need) + 1))
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
        return _in_blocks(
            lambda at, c, rows, *rest: self._mixed(
                at, planned_work(np, c, rows, *rest)
            ),
            [lane, ctx, requests * (self.nextn + 1), isl, osl, prefix],
        )

    def decode_ms(self, lane, requests, kv_len) -> Float[np.ndarray, " n"]:
        """One decode step of `requests` requests whose newest token sees kv_len; ms."""
        lane, requests, kv_len = _broadcast(lane, requests, kv_len)
        rows = requests * (self.nextn + 1)
        return _in_blocks(self._decode, [lane, rows, kv_len])

    def _decode(self, lane, rows, kv_len) -> np.ndarray:
        self.ensure(1, rows.max(initial=1), 1)
        counts = [rows, kv_len]
        if self.pricer.analytic or lane.size <= FEW:
            out = self._evaluate(
                kernels.decode_ms,
                lane,
                counts,
                lambda left: self._fill_generation(
                    lane[left], rows[left], kv_len[left]
                ),
                self._alive[1],
            )
        else:
            out = self._decode_many(lane, counts)
        return self._dense(
            out,
            lane,
            rows,
            kv_len,
            lambda i: self.scalar(int(lane[i])).decode_ms(int(rows[i]), int(kv_len[i])),
        )

    def _decode_many(self, lane, counts) -> np.ndarray:
        """Inside the grid, beyond it and across its edge with a program each."""
        rows, kv_len = counts
        low, high = self._decode_limits()
        at = lane, rows.astype(np.int64)
        first, last = decode_span(np, kv_len)
        if not self.host.averaged[: len(self.lanes)].all():
            plain = ~self.host.averaged[lane]
            first = np.where(plain, kv_len, first)
            last = np.where(plain, kv_len, last)
        inside = (first >= low[at]) & (last <= high[at])
        outside = first > high[at]
        out = np.empty(lane.size)
        for here, grid in (
            (inside, None),
            (outside, False),
            (~(inside | outside), True),
        ):
            which = np.flatnonzero(here)
            if which.size == 0:
                continue
            part = [lane[which], *(c[which] for c in counts)]
            if grid is None:
                options = self._options._replace(unrolled=True)
                out[which] = self._pass(kernels.decode_ms, options, part[0], part[1:])
                continue

            def fill(left, part=part):
                self._fill_generation(*(values[left] for values in part))

            out[which] = self._held(
                kernels.decode_ms, part[0], part[1:], fill, self._alive[1], grid=grid
            )
        return out

    def _decode_limits(self) -> tuple[np.ndarray, np.ndarray]:
        """KV lengths [lanes, rows] between which the decode grid answers."""
        if self._limits is None:
            rows = np.arange(self.widths.generation, dtype=np.float64)
            grid = self.host.generation
            found = [inner_range(grid, lane, rows) for lane in range(grid.cuts.size)]
            low, high = (np.stack(part) for part in zip(*found, strict=True))
            self._limits = low, high
        return self._limits

    def prefill_ms(self, lane, batch, isl, prefix) -> Float[np.ndarray, " n"]:
        """Prefill of `batch` requests of isl tokens, `prefix` (< isl) cached; ms."""
        lane, batch, isl, prefix = _broadcast(lane, batch, isl, prefix)
        new = isl - prefix
        self.ensure((batch * new).max(initial=1), 1, batch.max(initial=1))

        def beyond(which):
            self._fill_context(lane[which], batch[which], new[which], prefix[which])

        def scalar(i):
            counts = (int(batch[i]), int(isl[i]), int(prefix[i]))
            return self.scalar(int(lane[i])).prefill_ms(*counts)

        counts = [batch, isl, prefix]
        alive = self._alive[0]
        out = self._evaluate(kernels.prefill_ms, lane, counts, beyond, alive)
        return self._dense(out, lane, batch, isl, scalar)

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

        def scalar(i):
            one = MixedWork(*(float(field[i]) for field in work))
            return sum(self.scalar(int(lane[i])).mixed_parts_ms(one))

        alive = self._alive[0]
        out = self._evaluate(kernels.mixed_ms, lane, list(work), beyond, alive)
        length = np.maximum(work.tokens + work.prefix, work.new + work.cached)
        return self._dense(
            out,
            lane,
            np.maximum(work.batch, work.rows),
            np.maximum(length, work.kv_len),
            scalar,
        )

    def decode_sum_ms(
        self, lane, requests, isl, osl, stride: int
    ) -> Float[np.ndarray, " n"]:
        """Decoding osl - 1 further tokens, one priced step per `stride` tokens; ms."""
        lane, requests, isl, osl = _broadcast(lane, requests, isl, osl)
        steps = np.maximum(np.ceil((osl - 1) / stride), 0).astype(np.int64)
        which = np.repeat(np.arange(lane.size), steps)
        first = np.cumsum(steps) - steps
        offset = (np.arange(which.size) - first[which]) * stride
        step = self.decode_ms(lane[which], requests[which], isl[which] + offset + 1)
        weight = np.minimum(stride, osl[which] - 1 - offset)
        total = np.bincount(which, step * weight, minlength=lane.size)
        return total.astype(np.float64)  # an empty sum is an integer

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
        spans = context_spans(np, new, cached, self.host.cp[lane])
        self._fill(0, lane, [(span + held, batch) for span, held in spans])

    def _fill_generation(self, lane, rows, kv_len) -> None:
        lengths = decode_lengths(np, kv_len) if self._options.averaging else []
        self._fill(1, lane, [(rows, length) for length in [*lengths, kv_len]])

    def tabulate(
        self,
        phase: int,
        lane: Int[np.ndarray, " n"],
        outer: Float[np.ndarray, " n"],
        inner: Float[np.ndarray, " n"],
    ) -> None:
        """Make the surface answer in the hold cells of these points.

        phase 0 (prefill): outer is the whole length, inner the requests; phase 1
        (decode): outer is the query rows, inner a KV length.
        """
        self._fill(phase, lane, [(outer, inner)])

    def _fill(self, phase: int, lane, points) -> None:
        """Tabulate the hold cells of (outer, inner) grid coordinates."""
        attention = self.phases[phase]
        group = attention.group[lane]
        outer = np.stack([o for o, _ in points])
        inner = np.stack([i for _, i in points])
        for g, member in enumerate(attention.members):
            here = group == g
            if here.any():
                member.fill(outer[:, here].ravel(), inner[:, here].ravel())
        rows = sum(len(member.near) for member in attention.members)
        if rows == self._hold_rows[phase]:
            return
        self._hold_rows[phase] = rows
        cells, near = stack_cells(attention.members, attention.is_context)
        name = "generation" if phase else "context"
        with precision():
            grid = getattr(self._stack, name)._replace(
                cells=jax.device_put(cells), near=jax.device_put(near)
            )
        self._stack = self._stack._replace(**{name: grid})

    def _evaluate(
        self,
        function: Callable,
        lane: Int[np.ndarray, " n"],
        counts: Sequence,
        beyond: Callable[[np.ndarray], None],
        alive: np.ndarray,
    ) -> Float[np.ndarray, " n"]:
        """All queries; `beyond` tabulates hold cells of the queries that it is given.

        `alive` [lanes]: whether the phase that matters has a price at all.
        """
        if self.pricer.analytic or lane.size > FEW:
            out = self._pass(function, self._options, lane, counts)
            again = np.flatnonzero(np.isnan(out) & alive[lane])
            if again.size and not self.pricer.analytic:
                out[again] = self._held(
                    function,
                    lane[again],
                    [c[again] for c in counts],
                    lambda left: beyond(again[left]),
                    alive,
                    grid=True,
                )
            return out
        out = self._pass(function, self._all_rules(), lane, counts, FEW_CHUNK)
        again = np.flatnonzero(np.isnan(out) & alive[lane])
        if again.size:
            beyond(again)
            part = [c[again] for c in counts]
            options = self._all_rules()
            out[again] = self._pass(function, options, lane[again], part, FEW_CHUNK)
        return out

    def _widest(self) -> int:
        grids = (self._stack.context, self._stack.generation)
        return max(part.near.shape[1] // 4 for part in grids)

    def _all_rules(self) -> Options:
        return self._options._replace(grid=True, hold=True, near=self._widest())

    def _held(
        self,
        function: Callable,
        lane: Int[np.ndarray, " n"],
        counts: Sequence,
        fill: Callable[[np.ndarray], None],
        alive: np.ndarray,
        *,
        grid: bool,
    ) -> Float[np.ndarray, " n"]:
        """Queries beyond the grid: few leaves first, new cells tabulated, then many."""
        out = np.full(lane.size, np.nan)
        for attempt in range(3):
            left = np.flatnonzero(np.isnan(out) & alive[lane])
            if left.size == 0:
                break
            if attempt == 1:
                fill(left)
            near = NARROW if attempt < 2 else self._widest()
            options = self._options._replace(
                grid=grid, hold=True, near=near, unrolled=near == NARROW
            )
            out[left] = self._pass(
                function, options, lane[left], [c[left] for c in counts]
            )
        return out

    def _dense(
        self,
        out: np.ndarray,
        lane: np.ndarray,
        batch: np.ndarray,
        length: np.ndarray,
        scalar: Callable[[int], float],
    ) -> np.ndarray:
        """What no cell covers (huge or no length, tiny slices), one by one."""
        far = (batch >= 1 << BATCH_OCTAVES - 1) | (length >= 1 << SEQUENCE_OCTAVES - 1)
        far |= length < 1
        for i in np.flatnonzero(np.isnan(out) & (far | self._sparse[lane])):
            out[i] = scalar(int(i))
        return out

    def scalar(self, lane: int) -> ScalarSteps:
        """One question at a time, without dispatch, within the current token tables."""
        if lane not in self._scalars:
            self._scalars[lane] = ScalarSteps(
                self.host, self.phases, lane, analytic=self.pricer.analytic
            )
        return self._scalars[lane]

    def _pass(
        self, function, options: Options, lane, counts, chunk: int = MANY_CHUNK
    ) -> np.ndarray:
        return run_chunks(self._stack, function, options, lane, counts, chunk)


def _in_blocks(
    price: Callable[..., np.ndarray], arrays: Sequence[np.ndarray]
) -> np.ndarray:
    """`price` over blocks of queries, so that temporaries stay small."""
    size = arrays[0].size
    if size <= BLOCK:
        return price(*arrays)
    starts = range(0, size, BLOCK)
    return np.concatenate([price(*(a[i : i + BLOCK] for a in arrays)) for i in starts])


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
