"""What was looked up for a deployment, for reports and saved configurations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from ..config import ForwardPassConfig
from ..memory import KvCapacity
from ..models import Layout, load_model, resolve_precision
from ..systems import load_system, resolve_version
from ._deployment import Deployment


class CacheMode(NamedTuple):
    """Type of a KV cache, and who chose it."""

    dtype: str
    source: Literal["user_override", "checkpoint", "aisimulate_policy"]


@dataclass(frozen=True)
class ResolvedRole:
    """What the words of a worker's settings meant. Tokens, blocks.

    version: engine version whose data answers. context_length: of the model or as given;
    max_model_len: the limit that the engine enforces, None for none. capacity: the memory
    estimate behind num_blocks, None where blocks were given. cache_mode: None where
    passes are not priced by an estimator.
    """

    record: ForwardPassConfig
    layout: Layout
    version: str
    num_blocks: int
    block_size: int
    context_length: int
    max_model_len: int | None
    capacity: KvCapacity | None
    cache_mode: CacheMode | None
    provenance: dict[str, str | None]


@dataclass(frozen=True)
class Resolved:
    """A deployment, and what was looked up for it, by role.

    Steps of estimated roles answer inside the measured grid only: pass scenarios through
    `with_prices` before they run.
    """

    deployment: Deployment
    roles: dict[str, ResolvedRole]

    @property
    def kv_cache_precision(self) -> dict[str, dict[str, str]]:
        """Cache type of every estimated role and who chose it."""
        return {
            name: {"dtype": role.cache_mode.dtype, "source": role.cache_mode.source}
            for name, role in self.roles.items()
            if role.cache_mode is not None
        }

    @property
    def provenance(self) -> dict[str, dict[str, str | None]]:
        """Where the prices of every role come from."""
        return {name: role.provenance for name, role in self.roles.items()}


def role_cache_mode(record: ForwardPassConfig, *, assumed: str | None = None) -> str:
    """Cache type of a role; `assumed` where the configuration names none."""
    device = load_system(record.system, record.systems_paths)
    version = resolve_version(
        record.system, record.backend, record.backend_version, record.systems_paths
    )
    mode = record.kvcache_quant_mode
    return resolve_precision(
        load_model(record.model),
        record.backend,
        version,
        device.sm_version,
        gemm=record.gemm_quant_mode,
        moe=record.moe_quant_mode,
        kv=assumed if mode is None else mode,
    ).kv


def cache_mode(record: ForwardPassConfig) -> CacheMode:
    """Cache type of an estimated role and its origin."""
    dtype = role_cache_mode(record)
    if record.kvcache_quant_mode is not None:
        return CacheMode(dtype, "user_override")
    named = load_model(record.model).checkpoint.names_cache
    return CacheMode(dtype, "checkpoint" if named else "aisimulate_policy")


def measured_provenance(version: str) -> dict[str, str | None]:
    """Origin of prices from the measured tables of an engine version."""
    return {
        "data_identity": None,
        "data_version": version,
        "data_version_unavailable_reason": None,
        "estimator": "op_level",
        "timing_source": "aic",
    }


def configured_provenance(kind: str) -> dict[str, str | None]:
    """Origin of fixed or polynomial prices."""
    source, words = ("configured",) * 2 if kind == "fixed" else ("built_in", "built-in")
    return {
        "data_version": None,
        "data_version_unavailable_reason": f"{words} timing does not use performance data",
        "estimator": kind,
        "timing_source": source,
    }
