"""Prices and memory of all layouts of one pool, compiled once and kept."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from aisim_jax.estimators import OpLevelBatch, compile_batch
from aisim_jax.memory import RunMemory, run_memory
from aisim_jax.models import Layout, ModelSpec, Precision, load_model, resolve_precision
from aisim_jax.systems import PerfTables, load_tables, resolve_version


@dataclass(frozen=True, slots=True)
class PoolKey:
    """What a pool of workers is compiled from."""

    model: str
    system: str
    backend: str
    version: str | None
    nextn: int
    precision: tuple[tuple[str, str], ...]
    systems_paths: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """One model on one system with one engine: tables and resolved precision."""

    spec: ModelSpec
    tables: PerfTables
    precision: Precision
    nextn: int

    @property
    def version(self) -> str:
        """Engine version whose tables are used."""
        return self.tables.version


@dataclass(frozen=True, slots=True, eq=False)
class Surfaces:
    """Prices and memory of `layouts`; both are indexed by lane."""

    pool: Pool
    layouts: tuple[Layout, ...]
    prices: OpLevelBatch
    memory: RunMemory


def _open_pool(key: PoolKey) -> Pool:
    spec = load_model(key.model)
    version = resolve_version(key.system, key.backend, key.version, key.systems_paths)
    tables = load_tables(key.system, key.backend, version, key.systems_paths)
    precision = resolve_precision(
        spec,
        key.backend,
        version,
        tables.spec.sm_version,
        **dict(key.precision),
    )
    return Pool(spec, tables, precision, key.nextn)


@dataclass(eq=False, repr=False)
class SurfaceCache:
    """Least-recently-used pools and their compiled layouts.

    Compiling costs far more than evaluating; sweeps that share a model, system, engine
    version, precision and layout set share the work. Not safe for concurrent writers.
    """

    capacity: int = 16
    _pools: OrderedDict[PoolKey, Pool] = field(default_factory=OrderedDict)
    _surfaces: OrderedDict[tuple, Surfaces] = field(default_factory=OrderedDict)

    def pool(self, key: PoolKey) -> Pool:
        """Model, tables and precision behind `key`."""
        return _kept(self._pools, key, self.capacity, lambda: _open_pool(key))

    def surfaces(self, key: PoolKey, layouts: tuple[Layout, ...]) -> Surfaces:
        """Compiled prices and memory of `layouts`, in this order."""
        return _kept(
            self._surfaces,
            (key, layouts),
            self.capacity,
            lambda: _compile(self.pool(key), layouts),
        )


def _kept(store: OrderedDict, key, capacity: int, build):
    if key not in store:
        store[key] = build()
    store.move_to_end(key)
    while len(store) > capacity:
        store.popitem(last=False)
    return store[key]


def _compile(pool: Pool, layouts: tuple[Layout, ...]) -> Surfaces:
    prices = compile_batch(
        pool.tables, pool.spec, pool.precision, layouts, nextn=pool.nextn
    )
    memory = run_memory(
        pool.spec,
        pool.precision,
        layouts,
        pool.tables.backend,
        pool.version,
        pool.tables.spec,
        nextn=pool.nextn,
    )
    return Surfaces(pool, layouts, prices, memory)


SHARED = SurfaceCache()
