"""Rules of the engine section that involve more than one field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._domains import expand
from ._problems import problem
from ._speculation_section import NgramSpeculation


if TYPE_CHECKING:
    from ._engine_section import EnginePrediction, EngineRecommendation


def check_engine(
    engine: EnginePrediction | EngineRecommendation,
    modes: tuple[str, ...],
    backends: tuple[str, ...],
) -> None:
    """Raise the first rule that is broken, for every mode and backend in question."""
    _check_roles(engine, modes)
    _check_mode_blocks(engine, modes)
    _check_drafts(engine, backends)
    _check_versions(engine, backends)
    _check_profile(engine, backends)
    for role in ("aggregated", "prefill", "decode"):
        worker = getattr(engine.workers, role)
        if worker is not None:
            _check_worker(role, worker, backends)


def _check_roles(engine: Any, modes: tuple[str, ...]) -> None:
    workers = engine.workers
    if "aggregated" in modes and workers.aggregated is None:
        raise problem(
            "missing_role",
            "workers.aggregated",
            "is needed by mode aggregated; an empty mapping is enough",
        )
    split = [role for role in ("prefill", "decode") if getattr(workers, role) is None]
    if "disaggregated" in modes and split:
        raise problem(
            "missing_role",
            f"workers.{split[0]}",
            "is needed by mode disaggregated; an empty mapping is enough",
        )
    if modes == ("aggregated",) and len(split) < 2:
        role = "prefill" if workers.prefill is not None else "decode"
        raise problem(
            "foreign_role", f"workers.{role}", "does not apply to mode aggregated"
        )
    if modes == ("disaggregated",) and workers.aggregated is not None:
        raise problem(
            "foreign_role", "workers.aggregated", "does not apply to mode disaggregated"
        )


def _check_mode_blocks(engine: Any, modes: tuple[str, ...]) -> None:
    if ("afd" in modes) != (engine.afd is not None):
        word = "is needed by" if engine.afd is None else "only applies to"
        raise problem("afd_block", "afd", f"{word} mode afd")
    if modes == ("aggregated",):
        if engine.kv_transfer is not None:
            raise problem(
                "transfer_needs_split",
                "kv_transfer",
                "does not apply to mode aggregated; remove it",
            )
        worker = engine.workers.aggregated
        if worker is not None and worker.hardware is not None:
            raise problem(
                "role_hardware",
                "workers.aggregated.hardware",
                "only prefill and decode roles take hardware of their own; set "
                "engine.hardware",
            )


def _check_drafts(engine: Any, backends: tuple[str, ...]) -> None:
    accepted = engine.nextn_accepted
    if engine.nextn and accepted is None:
        raise problem(
            "nextn_needs_accepted",
            "nextn_accepted",
            f"is needed with nextn = {engine.nextn}; give 0 to {engine.nextn}",
        )
    if accepted is not None and (not engine.nextn or accepted > engine.nextn):
        raise problem(
            "accepted_range",
            "nextn_accepted",
            f"must be 0 to nextn = {engine.nextn} with nextn above 0, got {accepted}",
        )
    if engine.nextn and engine.speculation is not None:
        raise problem(
            "speculation_with_nextn",
            "nextn",
            f"is {engine.nextn} and a speculation block is given too; keep one",
        )
    if isinstance(engine.speculation, NgramSpeculation) and backends != ("vllm",):
        raise problem(
            "ngram_needs_vllm",
            "speculation.kind",
            f"ngram needs backend vllm, got {', '.join(backends)}",
        )


def _check_versions(engine: Any, backends: tuple[str, ...]) -> None:
    versions = engine.backend_version
    if isinstance(versions, dict):
        for name in (name for name in versions if name not in backends):
            raise problem(
                "unsearched_backend",
                f"backend_version.{name}",
                f"is not a backend of this search, which has {', '.join(backends)}",
            )


def _check_profile(engine: Any, backends: tuple[str, ...]) -> None:
    if engine.systems_path is not None and engine.systems_paths is not None:
        raise problem(
            "duplicate_field",
            "systems_path",
            "is the old form of systems_paths, which is given too; keep one",
        )
    if engine.fpm_profile is None:
        return
    if backends != ("vllm",):
        raise problem("profile_needs_vllm", "fpm_profile", "needs backend vllm alone")
    if engine.backend_version in (None, "current", "previous", "next"):
        raise problem(
            "profile_needs_version",
            "backend_version",
            "must be a literal version when fpm_profile is given",
        )


def _check_worker(role: str, worker: Any, backends: tuple[str, ...]) -> None:
    place = f"workers.{role}"
    sizes = expand(worker.kv_cache.block_size)
    paged = [name for name in backends if name in ("vllm", "trtllm")]
    if 1 in sizes and paged:
        raise problem(
            "small_block",
            f"{place}.kv_cache.block_size",
            f"must be 2 or more for backend {paged[0]}, got 1",
        )
    for name, backend, idle in (
        ("prefill_schedule_interval", "vllm", 1),
        ("prefill_decode_interval", "sglang", 0),
    ):
        value = getattr(worker.scheduler, name, idle)
        if value != idle and backend not in backends:
            raise problem(
                "interval_backend",
                f"{place}.scheduler.{name}",
                f"only applies to backend {backend}, got {value} with {backends[0]}",
            )
