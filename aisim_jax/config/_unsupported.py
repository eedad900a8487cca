"""What a valid configuration asks for and this version does not simulate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ._domains import expand
from ._prediction import PredictionConfig
from ._recommendation import RecommendationConfig
from ._traffic_load import AgenticControls, KvCapacityFractionLoad
from ._traffic_source import SyntheticSource, TraceSource
from ._worker_section import ROLES


UNREAD_FORMATS = ("agentic_mooncake", "applied_compute_agentic", "dynamo", "weka")
AGENTIC = ("agentic_lanes", "agentic_snapshot", "agentic_warmup", "agentic_profile")
HOST_BLOCKS = ("host_loop", "frontend", "host_profile", "vision")
CACHE_BLOCKS = (
    "prefix_match_unit",
    "host_offload",
    "g3_offload",
    "kvcr",
    "state_cache",
)


def unsupported_features(
    config: PredictionConfig | RecommendationConfig,
) -> list[str]:
    """One sentence per requested feature that is not built; empty = all is simulated."""
    return [
        f"{path}: {what} not simulated yet; remove it."
        for path, what in (
            *_traffic(config),
            *_engine(config),
            *_workers(config),
            *_resources(config),
        )
    ]


def _traffic(config: Any) -> Iterator[tuple[str, str]]:
    source, load = config.traffic.source, config.traffic.load
    if isinstance(source, SyntheticSource) and source.images is not None:
        yield "traffic.source.images", "image inputs are"
    if isinstance(source, TraceSource) and source.format in UNREAD_FORMATS:
        yield "traffic.source.format", f"traces in format {source.format} are"
    if isinstance(load, KvCapacityFractionLoad) and not isinstance(
        source, SyntheticSource
    ):
        yield "traffic.load.type", "sessions at a fraction of the KV capacity are"
    if isinstance(load, AgenticControls):
        for name in (name for name in AGENTIC if getattr(load, name)):
            yield f"traffic.load.{name}", "agentic replays are"


def _engine(config: Any) -> Iterator[tuple[str, str]]:
    engine = config.engine
    if "afd" in expand(engine.mode):
        yield "engine.mode", "attention and feed-forward on separate nodes (afd) are"
    if engine.fpm_profile is not None:
        yield "engine.fpm_profile", "profiles of unregistered models are"
    if engine.speculation is not None:
        yield (
            "engine.speculation",
            f"speculation of kind {engine.speculation.kind} (use nextn for the model's "
            "own draft layers) is",
        )


def _workers(config: Any) -> Iterator[tuple[str, str]]:
    workers = config.engine.workers
    if workers.encoder is not None:
        yield "engine.workers.encoder", "encoder pools are"
    for role in ROLES:
        worker = getattr(workers, role)
        if worker is None:
            continue
        place = f"engine.workers.{role}"
        for name in (name for name in HOST_BLOCKS if getattr(worker, name, None)):
            yield f"{place}.{name}", "host-side costs are"
        for name in CACHE_BLOCKS:
            if getattr(worker.kv_cache, name, None) is not None:
                yield f"{place}.kv_cache.{name}", "caches beyond GPU blocks are"


def _resources(config: Any) -> Iterator[tuple[str, str]]:
    resources = config.execution.resources
    for name, field in type(resources).model_fields.items():
        if getattr(resources, name) != field.default:
            yield f"execution.resources.{name}", "limits on the process itself are"
