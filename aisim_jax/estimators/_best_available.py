"""One constructor for every estimator: the best that the data allows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._errors import AisimError, UnsupportedError
from ..config import ForwardPassConfig, normalize_config
from ..models import load_model, resolve_precision
from ..systems import load_tables
from ._op_level import OpLevelModel, config_layout


BUILT_MODES = ("SILICON", "SOL", "HYBRID")


def best_available(config: Mapping[str, Any] | ForwardPassConfig) -> OpLevelModel:
    """Construct the estimator that `config` asks for.

    `config` is a canonical forward-pass record or a mapping with its field names.
    Today this is the operation-level estimator in database modes SILICON, HYBRID (where
    nothing is missing) and SOL. Data roots are tried in order. Raises
    InvalidInputError for a bad field, MissingPerfDataError when no root has the tables,
    UnsupportedError for what is not built.

    >>> model = best_available(
    ...     {"model": "Qwen/Qwen3-32B-FP8", "system": "h200_sxm", "backend": "vllm",
    ...      "worker_type": "aggregated", "tp": 4}
    ... )
    >>> model.predict_decode_latency_total(64, 64 * 2048) > 0
    True
    """
    record = normalize_config(config)
    _refuse_unbuilt(record)
    failures: list[AisimError] = []
    for root in record.systems_paths or ("default",):
        try:
            return _op_level(record, root, tuple(map(str, failures)))
        except AisimError as error:
            failures.append(error)
    raise failures[0]


def _op_level(
    record: ForwardPassConfig, root: str, failures: tuple[str, ...]
) -> OpLevelModel:
    roots = (root,)
    spec = load_model(record.model)
    tables = load_tables(record.system, record.backend, record.backend_version, roots)
    modes = {
        "gemm": record.gemm_quant_mode,
        "moe": record.moe_quant_mode,
        "kv": record.kvcache_quant_mode,
        "fmha": record.fmha_quant_mode,
        "comm": record.comm_quant_mode,
    }
    quant = resolve_precision(
        spec,
        record.backend,
        tables.version,
        tables.spec.sm_version,
        **{name: mode for name, mode in modes.items() if mode is not None},
    )
    return OpLevelModel(
        record,
        spec,
        quant,
        tables,
        config_layout(record),
        _draft_tokens(record),
        failures,
    )


def _draft_tokens(record: ForwardPassConfig) -> int:
    """Draft tokens per step: the speculation block rules when there is one."""
    if record.speculation is None:
        return record.nextn
    return int(record.speculation.params.num_speculative_tokens)


def _refuse_unbuilt(record: ForwardPassConfig) -> None:
    """One sentence for every accepted field that would change nothing here."""
    if record.estimation_mode not in ("auto", "op_level"):
        raise UnsupportedError(
            f"estimation_mode: {record.estimation_mode} is not built; use op_level or auto"
        )
    if record.database_mode not in BUILT_MODES:
        raise UnsupportedError(
            f"database_mode: {record.database_mode} is not built; use "
            f"{', '.join(BUILT_MODES)}"
        )
    neutral = {
        "fpm_profile": None,
        "dcp": (None, 1),
        "decoder_replay": False,
        "moe_backend": (None, "default"),
        "moe_kernel_source": None,
        "enable_eplb": False,
        "wideep_num_slots": None,
        "enable_shared_layer": (None, True),
        "strict_provenance": False,
        "encoder_parallel": None,
    }
    for name, allowed in neutral.items():
        value = getattr(record, name)
        if value not in (allowed if isinstance(allowed, tuple) else (allowed,)):
            raise UnsupportedError(
                f"{name}: {value!r} is not built for op_level; leave it unset"
            )
