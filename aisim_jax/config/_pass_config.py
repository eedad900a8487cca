"""The canonical record of one role's engine, from the engine section."""

from __future__ import annotations

from typing import Any

from ._engine_section import EnginePrediction
from ._forward_pass import ForwardPassConfig
from ._normalize import normalize_config
from ._timing_section import DefaultTiming, QuantModes


OVERRIDES = (
    *QuantModes.model_fields,
    "estimation_mode",
    "fallback_policy",
    "estimator_config",
    "systems_paths",
    "database_mode",
    "transfer_policy",
)
CARRIED = (
    "model",
    "backend",
    "backend_version",
    "decoder_replay",
    "enable_eplb",
    "enable_shared_layer",
    "moe_backend",
    "moe_kernel_source",
    "nextn",
    "wideep_num_slots",
)


def forward_pass_config(engine: EnginePrediction, role: str) -> ForwardPassConfig:
    """Which engine the workers of a role are, with the role's own settings on top.

    `role` is aggregated, prefill or decode. Expert sizes of 1 and 1 on several GPUs mean
    that the layout says nothing about experts.
    """
    worker = getattr(engine.workers, role)
    shape = worker.parallelism
    record: dict[str, Any] = {name: getattr(engine, name) for name in CARRIED}
    record |= {
        "system": worker.hardware or engine.hardware,
        "worker_type": role,
        "tp": shape.tensor,
        "pp": shape.pipeline,
        "attention_dp": shape.attention_data,
        "dcp": shape.decode_context,
        "cp_size": shape.prefill_context,
        "kv_block_size": worker.kv_cache.block_size,
        "strict_provenance": bool(engine.strict_provenance),
    }
    width = shape.tensor * shape.attention_data * (shape.prefill_context or 1)
    if width == 1 or shape.moe_tensor * shape.moe_expert > 1:
        record |= {"moe_tp_size": shape.moe_tensor, "moe_ep_size": shape.moe_expert}
    for name in OVERRIDES:
        own = getattr(worker.timing, name, None)
        record[name] = getattr(engine, name) if own is None else own
    timing = worker.timing
    if isinstance(timing, DefaultTiming) and timing.forward_model == "fpm":
        record["estimation_mode"] = "fpm_interpolation"
    record["systems_paths"] = record["systems_paths"] or ()
    return normalize_config(record)
