"""Everything that occupies one rank of a deployment, and the pool that remains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from aisim_jax.kernels import activation_bytes, kv_pool
from aisim_jax.models import Layout, ModelSpec, build_operations, resolve_precision
from aisim_jax.systems import load_system, resolve_version

from ._constants import MemoryConstants
from ._length_curve import KvCurve, kv_curve
from ._loads import activation_rate, nccl_bytes, other_bytes
from ._weights import served_weight_bytes


@dataclass(frozen=True, slots=True)
class RankLoads:
    """Bytes on one rank, not rounded.

    capacity: of the device
    graphs, reserved: fixed amounts outside the pool, as asked
    """

    backend: str
    kv_quant: str
    curve: KvCurve
    capacity: float
    weights: float
    activations: float
    other: float
    nccl: float
    reserved: float = 0.0
    graphs: float = 0.0

    def pool(self, fraction: float, constants: MemoryConstants) -> float:
        """Bytes left for KV at memory fraction `fraction`; negative when none are."""
        engine = constants.engines[self.backend]
        before = sum((getattr(self, load) for load in engine.charged_before), 0.0)
        after = sum((getattr(self, load) for load in engine.charged_after), 0.0)
        return kv_pool(self.capacity, fraction, before, after)


def rank_loads(
    spec: ModelSpec,
    system: str,
    backend: str,
    version: str | None,
    layout: Layout,
    *,
    max_num_tokens: int,
    constants: MemoryConstants,
    precision: Mapping[str, str | None] | None = None,
    dcp: int = 1,
    nextn: int = 0,
    capacity_bytes: int | None = None,
    reserved_bytes: int = 0,
    graph_bytes: int = 0,
    systems_paths: Sequence[str] = (),
) -> RankLoads:
    """Lower a deployment to the loads of one rank.

    version: of the backend, None = the current one
    max_num_tokens: tokens of one forward pass
    precision: overrides of `resolve_precision` by part
    capacity_bytes: replaces the size of the system's device
    """
    device = load_system(system, systems_paths)
    version = resolve_version(system, backend, version, systems_paths)
    modes = resolve_precision(
        spec, backend, version, device.sm_version, **(precision or {})
    )
    curve = kv_curve(spec, modes.kv, layout.tp, backend, dcp)
    engine = constants.engines[backend]
    operations = build_operations(spec, modes, layout, engine.name, nextn=nextn).context
    rate = activation_rate(spec, layout, backend, constants)
    activations = activation_bytes(
        float(max_num_tokens),
        rate.hidden,
        rate.workspace,
        float(engine.activation_floor_bytes),
        engine.activation_scale,
        xp=np,
    )
    return RankLoads(
        backend=backend,
        kv_quant=modes.kv,
        curve=curve,
        capacity=float(device.mem_capacity_bytes)
        if capacity_bytes is None
        else float(capacity_bytes),
        weights=served_weight_bytes(spec, modes, operations, layout, backend, nextn),
        activations=float(activations),
        other=other_bytes(device, engine),
        nccl=float(nccl_bytes(device, layout.tp)),
        reserved=float(reserved_bytes),
        graphs=float(graph_bytes),
    )
