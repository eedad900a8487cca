"""`estimate`: what one given deployment delivers at steady state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from aisim_jax._errors import InvalidInputError
from aisim_jax.models import Layout

from ._experiment import Experiment
from ._parameters import COMPAT
from ._single_points import (
    PointEstimate,
    PoolChoice,
    estimate_aggregated,
    estimate_disaggregated,
    estimate_static,
    one_layout,
)
from ._surfaces import SHARED, SurfaceCache


MODES = ("agg", "static", "static_ctx", "static_gen", "disagg")


def estimate(
    model: str,
    system: str,
    backend: str,
    mode: str = "agg",
    *,
    layout: Layout = Layout(),
    isl: int = 1024,
    osl: int = 1024,
    batch: int = 128,
    ctx_tokens: int | None = None,
    prefix: int = 0,
    prefill: PoolChoice | None = None,
    decode: PoolChoice | None = None,
    decode_system: str | None = None,
    nextn: int = 0,
    accepted: float = 0.0,
    stride: int = COMPAT.decode_stride_tokens,
    memory_fraction: float | None = None,
    version: str | None = None,
    precision: Mapping[str, str] | None = None,
    systems_paths: Sequence[str] = (),
    compat: bool = False,
    cache: SurfaceCache = SHARED,
) -> PointEstimate:
    """Estimate one deployment.

    mode: "agg" (continuous batching), "static" (one batch, prompt and output),
        "static_ctx" or "static_gen" (one of its phases), "disagg"
    layout, batch, ctx_tokens: parallel sizes of the worker, requests per attention-DP
        rank, prefill tokens of a mixed step (default: one prompt)
    prefill, decode: the two pools of a disaggregated deployment
    isl, osl, prefix: tokens of prompt, output and cached part of the prompt
    stride: tokens between two priced decode steps of a static run
    compat: round the rows of the two pools to three decimals first, as the reference

    Raises InfeasibleError with the missing bytes when the model does not fit; a cache
    beyond the engine's reservation is only marked (`kv_oom`).
    """
    if mode not in MODES:
        raise InvalidInputError(f"mode {mode!r} is not known; use {', '.join(MODES)}")
    question = Experiment(
        model=model,
        system=system,
        backend=backend,
        serving_mode="disagg" if mode == "disagg" else "agg",
        total_gpus=max(2, layout.gpus),
        isl=isl,
        osl=osl,
        prefix=prefix,
        version=version,
        nextn=nextn,
        accepted=accepted,
        decode_system=decode_system,
        memory_fraction=memory_fraction,
        precision=precision or {},
        systems_paths=tuple(systems_paths),
    )
    question = replace(
        question, parameters=question.parameters._replace(decode_stride_tokens=stride)
    )
    if mode == "disagg":
        if prefill is None or decode is None:
            raise InvalidInputError(
                "a disaggregated estimate needs both pools; give prefill=PoolChoice(...) "
                "and decode=PoolChoice(...)"
            )
        return estimate_disaggregated(question, prefill, decode, compat, cache)
    surfaces = one_layout(question, "agg", layout, cache)
    if mode == "agg":
        return estimate_aggregated(question, surfaces, batch, ctx_tokens or isl)
    return estimate_static(question, surfaces, batch, mode)
