"""Batched prices of one model's layouts on one system and engine.

`OpLevelBatch` evaluates arrays of queries, each naming its lane (layout). It runs the
jitted kernels without the hold rule first, then only the unanswered queries with it.
Inputs and outputs are NumPy; sizes are padded to powers of two, so the compile key is
(stack shapes, static options, bucket).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from .._errors import AisimError
from .._precision import precision
from ..kernels import _steps
from ..kernels._steps import Options, StepStack
from ..models import ModelSpec, Precision, build_operations
from ..models._layout import Layout
from ..systems import PerfTables
from ._compile import CompiledLane, compile_lanes, stack_lanes
from ._token_curves import TokenPricer


CONTEXT_WIDTH = 16384
GENERATION_WIDTH = 4096
LOGITS_WIDTH = 1024
SMALLEST_BUCKET = 64


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

    def mixed_ms(self, lane, context_tokens, requests, isl, osl, prefix):
        """One step of `context_tokens` prefill tokens and `requests` decodes; ms."""
        return _steps.mixed_ms(
            self.stack, lane, context_tokens, requests, isl, osl, prefix, self.options
        )

    def scheduled_ms(self, lane, n, new, cached, nd, kv):
        """One rank's pass from its five scheduled sums; ms."""
        return _steps.scheduled_ms(
            self.stack, lane, n, new, cached, nd, kv, self.options
        )


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
        self.errors = tuple(_first_error(lane) for lane in lanes)
        self.nextn = nextn
        self._widths = (CONTEXT_WIDTH, GENERATION_WIDTH, LOGITS_WIDTH)
        self._restack()

    def _restack(self) -> None:
        context, generation, logits = self._widths
        self.host = stack_lanes(
            self.pricer,
            self.lanes,
            context_width=context,
            generation_width=generation,
            logits_width=logits,
            rows_per_request=self.nextn + 1,
        )
        self._options = Options(
            hold=False,
            two_cuts=bool((self.host.context.cuts == 2).any())
            or bool((self.host.generation.cuts == 2).any()),
            context_parallel=bool((self.host.cp > 1).any()),
            analytic=self.pricer.analytic,
        )
        with precision():
            self._stack = jax.tree.map(jnp.asarray, self.host)

    def surface(self, *, hold: bool = True) -> OpLevelSurface:
        """The arrays as a pytree module; use it inside `aisim_jax.precision()`."""
        return OpLevelSurface(self._stack, self._options._replace(hold=hold))

    def _ensure(self, context: float, generation: float, logits: float) -> None:
        """Grow the token tables to the next power of two that holds these counts."""
        wanted = tuple(
            max(have, 1 << int(need).bit_length())
            for have, need in zip(self._widths, (context, generation, logits))
        )
        if wanted != self._widths:
            self._widths = wanted
            self._restack()

    def mixed_ms(
        self, lane, context_tokens, requests, isl, osl, prefix
    ) -> Float[np.ndarray, " n"]:
        """Mixed steps: `context_tokens` prefill tokens and `requests` decodes; ms."""
        lane, *counts = _broadcast(lane, context_tokens, requests, isl, osl, prefix)
        if lane.size:
            rows = counts[1] * (self.nextn + 1)
            self._ensure((counts[0] + rows).max(), rows.max(), 2)
        return self._evaluate(_steps.mixed_ms, lane, counts)

    def decode_ms(self, lane, requests, kv_len) -> Float[np.ndarray, " n"]:
        """One decode step of `requests` requests whose newest token sees kv_len; ms."""
        lane, requests, kv_len = _broadcast(lane, requests, kv_len)
        rows = requests * (self.nextn + 1)
        if lane.size:
            self._ensure(1, rows.max(), 1)
        return self._evaluate(_steps.decode_ms, lane, [rows, kv_len])

    def prefill_ms(self, lane, batch, isl, prefix) -> Float[np.ndarray, " n"]:
        """Prefill of `batch` requests of isl tokens, `prefix` (< isl) cached; ms."""
        lane, batch, isl, prefix = _broadcast(lane, batch, isl, prefix)
        if lane.size:
            self._ensure((batch * (isl - prefix)).max(), 1, batch.max())
        out = self._evaluate(_steps.prefill_ms, lane, [batch, isl, prefix])
        return np.where(isl > prefix, out, np.nan)

    def decode_sum_ms(
        self, lane, requests, isl, osl, stride: int = 32
    ) -> Float[np.ndarray, " n"]:
        """Decoding osl - 1 further tokens, one priced step per `stride` tokens; ms."""
        lane, requests, isl, osl = _broadcast(lane, requests, isl, osl)
        steps = np.maximum(np.ceil((osl - 1) / stride), 0).astype(np.int64)
        which = np.repeat(np.arange(lane.size), steps)
        first = np.concatenate([[0], np.cumsum(steps)[:-1]])
        offset = (np.arange(which.size) - first[which]) * stride
        step = self.decode_ms(
            lane[which], requests[which], isl[which] + offset + 1
        )
        weight = np.minimum(stride, osl[which] - 1 - offset)
        return np.bincount(which, step * weight, minlength=lane.size)

    def scheduled_ms(self, lane, n, new, cached, nd, kv) -> Float[np.ndarray, " n"]:
        """One rank's forward passes from their five scheduled sums; ms."""
        lane, *counts = _broadcast(lane, n, new, cached, nd, kv)
        n, new, cached, nd, kv = counts
        out = np.zeros(lane.size)
        prefill, decode = new > 0, (nd > 0) | (kv > 0)
        if lane.size:
            self._ensure((new + nd).max(), max(nd.max(), 1), max(n.max(), 1))
        only = np.flatnonzero(decode & ~prefill)
        rows = np.maximum(nd[only], 1.0)
        out[only] = self._evaluate(
            _steps.decode_ms, lane[only], [rows, np.floor(kv[only] / rows)]
        )
        only = np.flatnonzero(prefill & ~decode)
        requests = np.maximum(n[only], 1.0)
        each, held = np.floor(new[only] / requests), np.floor(cached[only] / requests)
        out[only] = self.prefill_ms(lane[only], requests, each + held, held)
        both = np.flatnonzero(prefill & decode)
        out[both] = self._evaluate(
            _steps.scheduled_ms, lane[both], [c[both] for c in counts]
        )
        return out

    def _evaluate(
        self, function: Callable, lane: Int[np.ndarray, " n"], counts: Sequence
    ) -> Float[np.ndarray, " n"]:
        out = self._pass(function, lane, counts, hold=False)
        again = np.flatnonzero(np.isnan(out))
        if again.size and not self.pricer.analytic:
            out[again] = self._pass(
                function, lane[again], [c[again] for c in counts], hold=True
            )
        return out

    def _pass(self, function, lane, counts, *, hold: bool) -> np.ndarray:
        size = lane.size
        if size == 0:
            return np.zeros(0)
        bucket = max(SMALLEST_BUCKET, 1 << (size - 1).bit_length())
        padded = [np.pad(c, (0, bucket - size), mode="edge") for c in (lane, *counts)]
        with precision():
            out = _run(
                self._stack,
                padded[0].astype(np.int32),
                tuple(padded[1:]),
                function=function,
                options=self._options._replace(hold=hold),
            )
            return np.array(out[:size])


def _first_error(lane: CompiledLane) -> AisimError | None:
    for phase in (lane.context, lane.generation):
        if isinstance(phase, AisimError):
            return phase
    return None


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
) -> OpLevelBatch:
    """Compile every layout of a model into one stack.

    Layouts that cannot be built or priced stay in place with their reason in `errors`.
    `analytic` prices operations at their speed of light (database mode SOL).
    """
    pricer = TokenPricer(tables, analytic=analytic)
    context_lanes = tables.lane_order("context", None, spec.architecture)
    generation_lanes = tables.lane_order("generation", None, spec.architecture)

    def builder(layout: Layout):
        return lambda: build_operations(
            spec,
            quant,
            layout,
            tables.backend,
            nextn=nextn,
            context_lanes=context_lanes,
            generation_lanes=generation_lanes,
        )

    lanes = compile_lanes(pricer, [builder(layout) for layout in layouts])
    return OpLevelBatch(pricer, layouts, lanes, nextn)
