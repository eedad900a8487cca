"""Memory of a run on one rank, for every layout of a sweep at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, Num

from aisim_jax._units import GIB
from aisim_jax.kernels import RunFootprint, RunVerdict, run_footprint, run_verdict
from aisim_jax.models import (
    Layout,
    ModelSpec,
    Precision,
    build_operations,
)
from aisim_jax.systems import SystemSpec

from ._constants import COMPAT, EngineMemory, MemoryConstants
from ._fractions import serving_fraction
from ._length_curve import kv_curve
from ._loads import activation_rate, nccl_bytes, other_bytes
from ._weights import weight_bytes


Numbers = (
    Num[np.ndarray, "..."] | np.number | Sequence[int] | Sequence[float] | float | int
)


@dataclass(frozen=True, slots=True, eq=False)
class RunMemory:
    """Loads of every lane (layout) in bytes per rank, and how the engine budgets.

    Build with `run_memory`; arguments of the methods broadcast, `lane` indexes
    `layouts`. All arrays are float64 over lanes.
    """

    layouts: tuple[Layout, ...]
    backend: str
    engine: EngineMemory
    nextn: int
    capacity_bytes: float
    tolerance: float
    weights_bytes: Float[np.ndarray, " lanes"]
    kv_bytes_per_token: Float[np.ndarray, " lanes"]
    activation_bytes_per_token: Float[np.ndarray, " lanes"]
    workspace_bytes_per_token: Float[np.ndarray, " lanes"]
    nccl_bytes: Float[np.ndarray, " lanes"]
    other_bytes: float
    serving_fraction: Float[np.ndarray, " lanes"]
    static_fraction: Float[np.ndarray, " lanes"]

    def gib(
        self,
        lane: Numbers,
        batch: Numbers,
        seq_tokens: Numbers,
        num_tokens: Numbers,
    ) -> RunFootprint:
        """Return GiB of total, weights, activations, kv, nccl and other.

        lane: index into `layouts`
        batch: requests per attention-DP rank
        seq_tokens: tokens kept per request, usually isl + osl
        num_tokens: tokens of the largest forward pass, drafts included
        """
        lane = np.asarray(lane)
        return run_footprint(
            np.asarray(num_tokens, np.float64),
            np.asarray(batch, np.float64),
            np.asarray(seq_tokens, np.float64),
            weights=self.weights_bytes[lane],
            kv_bytes_per_token=self.kv_bytes_per_token[lane],
            activation_bytes_per_token=self.activation_bytes_per_token[lane],
            workspace_bytes_per_token=self.workspace_bytes_per_token[lane],
            activation_floor_bytes=float(self.engine.activation_floor_bytes),
            activation_scale=self.engine.activation_scale,
            nccl=self.nccl_bytes[lane],
            other=self.other_bytes,
            unit_bytes=float(GIB),
            xp=np,
        )

    def verdict(
        self,
        lane: Numbers,
        footprint: RunFootprint,
        *,
        fraction: Numbers | None = None,
        static: bool = False,
    ) -> RunVerdict:
        """Compare a GiB footprint with device and engine budget; `missing` is GiB.

        fraction: the user's memory fraction, else the engine's own
        static: a dedicated prefill or decode worker (matters for SGLang)
        """
        if fraction is None:
            defaults = self.static_fraction if static else self.serving_fraction
            fraction = defaults[np.asarray(lane)]
        return run_verdict(
            footprint,
            self.capacity_bytes / GIB,
            np.asarray(fraction, np.float64),
            self.engine.fraction_kind == "of_free",
            self.engine.run_reserved_fraction,
            self.tolerance,
            xp=np,
        )

    def mixed_tokens(
        self, context_tokens: Numbers, decode_requests: Numbers
    ) -> Int[np.ndarray, " *cands"]:
        """Tokens of the largest step of an aggregated worker.

        context_tokens: prefill tokens of a mixed step
        decode_requests: requests that decode beside them; 0 when prefill runs alone
        An engine that sizes for a fixed step uses that; drafts multiply decode rows.
        """
        rows = self.nextn + 1
        context, requests = np.broadcast_arrays(context_tokens, decode_requests)
        if self.engine.run_tokens is not None:
            return np.full(context.shape, self.engine.run_tokens * rows)
        return np.asarray(np.maximum(context + requests * rows, rows))

    def prefill_gib(
        self, lane: Numbers, batch: Numbers, isl: int, prefix: int = 0
    ) -> RunFootprint:
        """GiB of a prefill worker: (isl - prefix) * batch tokens, one output each."""
        tokens = np.multiply(batch, isl - prefix)
        return self.gib(lane, batch, isl + 1, tokens)

    def decode_gib(
        self, lane: Numbers, batch: Numbers, isl: int, osl: int
    ) -> RunFootprint:
        """GiB of a decode worker: one row per request and draft, isl + osl kept."""
        tokens = np.multiply(batch, self.nextn + 1)
        return self.gib(lane, batch, isl + osl, tokens)


def run_memory(
    spec: ModelSpec,
    precision: Precision,
    layouts: Sequence[Layout],
    backend: str,
    version: str,
    system: SystemSpec,
    *,
    nextn: int = 0,
    constants: MemoryConstants = COMPAT,
    weights_bytes: Numbers | None = None,
) -> RunMemory:
    """Lower a model on a system to per-lane loads.

    weights_bytes: resident bytes of each layout when already known, else they are
        summed from the operations
    """
    engine = constants.engines[backend]
    layouts = tuple(layouts)
    if weights_bytes is None:
        weights_bytes = [
            weight_bytes(
                build_operations(
                    spec, precision, layout, engine.name, nextn=nextn
                ).context,
                layout.pp,
            )
            for layout in layouts
        ]
    rates = [activation_rate(spec, x, backend, constants) for x in layouts]
    serving, static = (
        [
            serving_fraction(
                backend,
                version,
                capacity_bytes=system.mem_capacity_bytes,
                layout=layout,
                static=static,
                constants=constants,
            )
            for layout in layouts
        ]
        for static in (False, True)
    )
    return RunMemory(
        layouts=layouts,
        backend=backend,
        engine=engine,
        nextn=nextn,
        capacity_bytes=float(system.mem_capacity_bytes),
        tolerance=constants.run_tolerance,
        weights_bytes=np.asarray(weights_bytes, np.float64),
        kv_bytes_per_token=_lanes(
            kv_curve(spec, precision.kv, x.tp, backend).bytes_per_token for x in layouts
        ),
        activation_bytes_per_token=_lanes(rate.hidden for rate in rates),
        workspace_bytes_per_token=_lanes(rate.workspace for rate in rates),
        nccl_bytes=_lanes(nccl_bytes(system, x.tp) for x in layouts),
        other_bytes=other_bytes(system, engine),
        serving_fraction=_lanes(serving),
        static_fraction=_lanes(static),
    )


def _lanes(values: Iterable[float]) -> Float[np.ndarray, " lanes"]:
    return np.array(list(values), np.float64)
