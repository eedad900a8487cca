"""`sweep`: the best deployments of models over systems, engines and serving modes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aisim_jax._backends import BACKENDS
from aisim_jax._defaults import ISL_TOKENS, OSL_TOKENS, TOP_N, TPOT_MS, TTFT_MS
from aisim_jax._errors import InvalidInputError
from aisim_jax.systems import list_profiles, load_system

from ._experiment import SERVING_MODES, Experiment, Sizes, require_count
from ._parameters import COMPAT
from ._picking import Load, check_load
from ._result import SweepResult
from ._run import require_answer, run_experiments
from ._surfaces import SHARED, SurfaceCache


MODES = ("complete", "compat")
LARGEST_WORKER_GPUS = 64
_DEFAULTS = COMPAT


def sweep(
    models: str | Sequence[str],
    systems: str | Sequence[str],
    backends: str | Sequence[str] = "auto",
    *,
    gpus: int | None = None,
    isl: int = ISL_TOKENS,
    osl: int = OSL_TOKENS,
    ttft_ms: float | None = TTFT_MS,
    tpot_ms: float = TPOT_MS,
    request_latency_ms: float | None = None,
    prefix: int = 0,
    target_request_rate: float | None = None,
    target_concurrency: float | None = None,
    max_gpus: int | None = None,
    strict_sla: bool = False,
    mode: str = "complete",
    serving_modes: str | Sequence[str] = SERVING_MODES,
    top_n: int = TOP_N,
    systems_paths: Sequence[str] = (),
    database_mode: str = "SILICON",
    version: str | None = None,
    nextn: int = 0,
    accepted: float = 0.0,
    layouts: Mapping[str, Sizes] | None = None,
    cache: SurfaceCache = SHARED,
    **settings: Any,
) -> SweepResult:
    """Evaluate every deployment of `models` and rank them.

    models, systems, backends: one name or several; "auto" means all engines (and, for
        systems, all that have data)
    gpus: GPUs to spend (default: one node). With a load target: the most GPUs of one
        worker; by default one node, doubled up to 64 while nothing fits.
    isl, osl, prefix: tokens of the prompt, the output and the cached part of the prompt
    ttft_ms, tpot_ms: limits; `request_latency_ms` replaces the latter by a limit on the
        whole request
    target_request_rate (1/s), target_concurrency: size for this load on the fewest
        GPUs; `max_gpus` caps the answer
    strict_sla: drop what misses the limit before frontier and ranking
    mode: "complete" keeps every point; "compat" reproduces the reference sweep
    database_mode: "SILICON"; "HYBRID" is the same wherever nothing is missing
    nextn, accepted: draft tokens per step and how many are accepted on average
    layouts: candidate sizes per role and dimension, {"agg": {"tp": [2, 4]}}
    settings: further fields of `Experiment`

    Raises InfeasibleError when no experiment has an answer, with the missing bytes or
    the best latencies that can be reached.

    >>> result = sweep("Qwen/Qwen3-32B-FP8", "h200_sxm", "vllm", gpus=8)  # doctest: +SKIP
    >>> result.chosen.cluster_tokens_per_s_per_gpu  # doctest: +SKIP
    """
    if mode not in MODES:
        raise InvalidInputError(f"mode {mode!r} is not known; use complete or compat")
    if database_mode.upper() not in ("SILICON", "HYBRID"):
        raise InvalidInputError(
            f"database mode {database_mode!r} cannot be swept; use SILICON or HYBRID"
        )
    require_count("top_n", top_n, 1)
    if gpus is not None:
        require_count("gpus", gpus, 1)
    load = _load(target_request_rate, target_concurrency, max_gpus)
    common = {
        "isl": isl,
        "osl": osl,
        "ttft_ms": ttft_ms,
        "tpot_ms": tpot_ms,
        "request_latency_ms": request_latency_ms,
        "prefix": prefix,
        "version": version,
        "nextn": nextn,
        "accepted": accepted,
        "systems_paths": tuple(systems_paths),
        **settings,
    }
    places = [
        (model, system, backend, serving_mode)
        for model in _names("models", models)
        for system in _names("systems", systems, lambda: _priced_systems(systems_paths))
        for backend in _names("backends", backends, lambda: BACKENDS)
        for serving_mode in _names("serving_modes", serving_modes)
    ]
    worker_gpus = gpus
    while True:
        questions = {
            _label(place, places): _question(
                place, worker_gpus, load, layouts or {}, common, mode
            )
            for place in places
        }
        result = run_experiments(
            questions,
            mode=mode,
            top_n=top_n,
            strict_sla=strict_sla,
            load=load,
            cache=cache,
        )
        largest = max(question.total_gpus for question in questions.values())
        if load is None or gpus is not None or not _outgrown(result, largest):
            return require_answer(result)
        worker_gpus = 2 * largest


def _outgrown(result: SweepResult, worker_gpus: int) -> bool:
    """Nothing answers, something did not fit, and workers may still grow."""
    causes = {e.failure.cause if e.failure else None for e in result.experiments}
    unfit = bool(causes & {"memory", "kv"})
    return None not in causes and unfit and worker_gpus < LARGEST_WORKER_GPUS


def _load(
    request_rate: float | None, concurrency: float | None, max_gpus: int | None
) -> Load | None:
    if request_rate is None and concurrency is None:
        if max_gpus is not None:
            raise InvalidInputError(
                f"max_gpus={max_gpus} caps the answer to a load; give "
                "target_request_rate or target_concurrency, or use gpus"
            )
        return None
    load = Load(request_rate, concurrency, max_gpus)
    check_load(load)
    return load


def _question(
    place: tuple[str, str, str, str],
    gpus: int | None,
    load: Load | None,
    layouts: Mapping[str, Sizes],
    common: Mapping[str, Any],
    mode: str,
) -> Experiment:
    model, system, backend, serving_mode = place
    node_gpus = load_system(system, common["systems_paths"]).gpus_per_node
    total = node_gpus if gpus is None else gpus
    changes: dict[str, Any] = {}
    if load is not None:
        powers = [size for size in (1, 2, 4, 8, 16, 32, 64) if size <= total]
        layouts = {
            role: {"gpus": powers, **layouts.get(role, {})}
            for role in ("agg", "prefill", "decode")
        }
        changes["max_replica_gpus"] = (
            node_gpus
            if mode == "compat"
            else common.get("parameters", _DEFAULTS).max_replica_gpus
        )
    return Experiment(
        model=model,
        system=system,
        backend=backend,
        serving_mode=serving_mode,
        total_gpus=total,
        layouts=layouts,
        **{**common, **changes},
    )


def _priced_systems(systems_paths: Sequence[str]) -> list[str]:
    found = sorted({profile.system for profile in list_profiles(systems_paths)})
    if not found:
        raise InvalidInputError(
            "systems: these data roots list no tables; name a system"
        )
    return found


def _names(
    what: str,
    given: str | Sequence[str],
    every: Callable[[], Sequence[str]] | None = None,
) -> list[str]:
    if not given:
        raise InvalidInputError(f"{what}: nothing is named; give at least one")
    if isinstance(given, str):
        return list(every()) if given == "auto" and every is not None else [given]
    return list(dict.fromkeys(given))


def _label(place: tuple[str, ...], places: Sequence[tuple[str, ...]]) -> str:
    """Serving mode, then whatever else tells the experiments apart: agg_trtllm."""
    model, system, backend, serving_mode = place
    parts = [serving_mode]
    for index, name in ((2, backend), (1, system), (0, model)):
        if len({other[index] for other in places}) > 1:
            parts.append(name)
    return "_".join(parts)
