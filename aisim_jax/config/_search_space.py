"""What a recommendation lets vary, as lists of values by dotted path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aisim_jax._backends import Backend

from ._cache_section import DefaultCapacitySearch
from ._domains import expand
from ._recommendation import RecommendationConfig
from ._resolve import BLOCK_SIZE_TOKENS, MEMORY_FRACTION
from ._worker_section import SIZES, NoPreset, ParallelShape


MODE_ROLES = {"aggregated": ("aggregated",), "disaggregated": ("prefill", "decode")}
BATCHED_TOKENS = {
    "aggregated": (8192, 16384, 32768),
    "prefill": (8192, 16384, 32768),
    "decode": (8192,),
}
SEQUENCES = {
    "aggregated": (256, 512, 1024),
    "prefill": (1, 2, 4, 8, 16, 32, 64, 128, 256),
    "decode": (256, 512, 1024),
}
LOAD_KNOBS = (
    "concurrency",
    "requests_per_second",
    "sessions_per_second",
    "fraction",
    "speedup",
)


@dataclass(frozen=True)
class ParallelSpace:
    """Which parallel shapes of a role are tried.

    shapes: the listed ones, None without a list. sizes: the allowed values of each size,
    None = every feasible one; with the default preset all are None.
    """

    shapes: tuple[ParallelShape, ...] | None
    sizes: dict[str, tuple[int, ...] | None]
    legal_pool: bool


def parallel_space(config: RecommendationConfig, role: str) -> ParallelSpace:
    """The shapes that the recommendation allows for a role.

    `legal_pool` is true for the default preset: only the structured pool of legal shapes,
    with one pipeline stage.
    """
    block = getattr(config.engine.workers, role).parallelism
    free: dict[str, tuple[int, ...] | None] = dict.fromkeys(SIZES)
    if isinstance(block.preset, tuple):
        return ParallelSpace(block.preset, free, legal_pool=False)
    if block.preset is False or isinstance(block.preset, NoPreset):
        for name in SIZES:
            domain = getattr(block, name)
            free[name] = None if domain is None else expand(domain)
        return ParallelSpace(None, free, legal_pool=False)
    return ParallelSpace(None, free, legal_pool=True)


def search_domains(
    config: RecommendationConfig, mode: str, backend: Backend
) -> dict[str, tuple[Any, ...]]:
    """Values of every searched field but the parallel shapes, for one branch.

    Keys are dotted paths, e.g. `engine.workers.decode.scheduler.max_sequences`; one value
    means that the field is fixed.
    """
    load = config.traffic.load
    domains = {
        f"traffic.load.{name}": expand(value)
        for name in LOAD_KNOBS
        if (value := getattr(load, name, None)) is not None
    }
    for role in MODE_ROLES[mode]:
        domains |= _worker_domains(config, role, backend)
    return domains


def _worker_domains(
    config: RecommendationConfig, role: str, backend: Backend
) -> dict[str, tuple[Any, ...]]:
    worker = getattr(config.engine.workers, role)
    place = f"engine.workers.{role}"
    scheduler, cache = worker.scheduler, worker.kv_cache
    domains = {
        f"{place}.scheduler.max_batched_tokens": _values(
            scheduler.max_batched_tokens, BATCHED_TOKENS[role]
        ),
        f"{place}.scheduler.max_sequences": _values(
            scheduler.max_sequences, SEQUENCES[role]
        ),
        f"{place}.kv_cache.block_size": _values(
            cache.block_size, (BLOCK_SIZE_TOKENS[backend],)
        ),
    }
    if isinstance(cache.capacity, DefaultCapacitySearch):
        domains[f"{place}.kv_cache.capacity.memory_fraction"] = _values(
            cache.capacity.memory_fraction, (MEMORY_FRACTION[backend],)
        )
    return domains


def _values(domain: Any, default: tuple[Any, ...]) -> tuple[Any, ...]:
    return default if domain is None else expand(domain)
