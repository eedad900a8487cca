"""Filling in what a prediction leaves to its engine: the same record, with no nulls
that mean a number."""

from __future__ import annotations

from typing import Any

from aisim_jax._backends import Backend

from ._cache_section import DefaultCapacity
from ._prediction import PredictionConfig
from ._traffic_load import ConcurrencyLoad, Rate
from ._traffic_section import TrafficPrediction, TrafficStop
from ._traffic_source import MOONCAKE_FORMATS, TraceSource
from ._worker_section import ROLES


BLOCK_SIZE_TOKENS: dict[Backend, int] = {"vllm": 64, "sglang": 1, "trtllm": 32}
MEMORY_FRACTION: dict[Backend, float] = {"vllm": 0.9, "sglang": 0.88, "trtllm": 0.9}
TRACE_BLOCK_TOKENS = 512


def resolve_prediction(config: PredictionConfig) -> PredictionConfig:
    """Block sizes, memory fractions and stops as numbers; a second call changes nothing.

    The engine's version and a context length of max stay words: `pin` replaces them.
    """
    engine = config.engine
    workers = engine.workers
    found = {role: getattr(workers, role) for role in ROLES}
    filled = {
        role: _fill(worker, engine.backend)
        for role, worker in found.items()
        if worker is not None
    }
    changed: dict[str, Any] = {"workers": workers.model_copy(update=filled)}
    if engine.systems_path is not None:
        changed |= {"systems_paths": (engine.systems_path,), "systems_path": None}
    return config.model_copy(
        update={
            "engine": engine.model_copy(update=changed),
            "traffic": _resolve_traffic(config.traffic),
        }
    )


def pin(
    config: PredictionConfig, backend_version: str, context_length: int
) -> PredictionConfig:
    """The record with the engine version and context length (tokens) that words meant."""
    changed = {"backend_version": backend_version, "context_length": context_length}
    engine = config.engine.model_copy(update=changed)
    return config.model_copy(update={"engine": engine})


def absolute_count(ratio: float, load: float) -> int:
    """Requests or sessions of a relative stop: max(1, round(ratio * load))."""
    return max(1, round(ratio * load))


def _fill(worker: Any, backend: Backend) -> Any:
    cache = worker.kv_cache
    changed: dict[str, Any] = {}
    if cache.block_size is None:
        changed["block_size"] = BLOCK_SIZE_TOKENS[backend]
    capacity = cache.capacity
    if isinstance(capacity, DefaultCapacity) and capacity.memory_fraction is None:
        fraction = MEMORY_FRACTION[backend]
        changed["capacity"] = capacity.model_copy(update={"memory_fraction": fraction})
    return worker.model_copy(update={"kv_cache": cache.model_copy(update=changed)})


def _resolve_traffic(traffic: TrafficPrediction) -> TrafficPrediction:
    source, stop = traffic.source, traffic.stop
    if (
        isinstance(source, TraceSource)
        and source.block_size is None
        and source.format in MOONCAKE_FORMATS
    ):
        source = source.model_copy(update={"block_size": TRACE_BLOCK_TOKENS})
    if stop is not None:
        load = _load_units(traffic)
        if stop.requests_per_load_unit is not None:
            count = absolute_count(stop.requests_per_load_unit, load)
            stop = TrafficStop(requests=count)
        elif stop.sessions_per_load_unit is not None:
            count = absolute_count(stop.sessions_per_load_unit, load)
            stop = TrafficStop(sessions=count)
    return traffic.model_copy(update={"source": source, "stop": stop})


def _load_units(traffic: TrafficPrediction) -> float:
    load = traffic.load
    if isinstance(load, ConcurrencyLoad):
        return load.concurrency
    return load.per_second if isinstance(load, Rate) else 0.0
