"""Capacity from a few dimensions alone, for models or systems that cannot be built."""

from __future__ import annotations

from dataclasses import dataclass

from aisim_jax._errors import InvalidInputError
from aisim_jax.models import Layout, ModelSpec


_DTYPE_BYTES = {"float32": 4, "float": 4, "int8": 1, "fp8": 1}
_DEFAULT_DTYPE_BYTES = 2


@dataclass(frozen=True, slots=True)
class NaiveLoads:
    """Weights of one rank and KV bytes of one token, both from the declared dtype."""

    weights_bytes: int
    kv_bytes_per_token: int


def naive_loads(spec: ModelSpec, layout: Layout) -> NaiveLoads:
    """Estimate loads without operations.

    weights = (2 V h + L (4 h^2 + 3 h inter)) size // (tp pp); with experts
    (2 V h + 4 L h^2) size // (tp pp) + L (E 3 h moe_inter // (moe_tp moe_ep)) size
    // pp. KV: latent L (kv_lora + rope) size, else 2 ceil(kv / tp) d L size.
    """
    size = _element_bytes(spec)
    dense = 2 * spec.vocab * spec.hidden + 4 * spec.layers * spec.hidden**2
    if spec.is_moe:
        experts = spec.experts * 3 * spec.hidden * spec.moe_intermediate
        weights = dense * size // (layout.tp * layout.pp)
        per_rank = experts // (layout.moe_tp * layout.moe_ep)
        weights += spec.layers * per_rank * size // layout.pp
    else:
        intermediate = spec.intermediate or 4 * spec.hidden
        dense += spec.layers * 3 * spec.hidden * intermediate
        weights = dense * size // (layout.tp * layout.pp)
    return NaiveLoads(weights, naive_kv_bytes_per_token(spec, layout.tp, size))


def naive_kv_bytes_per_token(spec: ModelSpec, tp: int, size: int | None = None) -> int:
    """KV bytes of one token on one rank; `size` is bytes per element."""
    size = _element_bytes(spec) if size is None else size
    if spec.is_mla and not spec.rope_dim:
        raise InvalidInputError(
            f"{spec.name}: qk_rope_head_dim is missing; add it to config.json"
        )
    return spec.layers * spec.kv_elements_at(tp) * size


def _element_bytes(spec: ModelSpec) -> int:
    declared = spec.config.get("torch_dtype") or spec.config.get("dtype") or ""
    name = str(declared).removeprefix("torch.")
    if name.startswith("float8"):
        return 1
    return _DTYPE_BYTES.get(name, _DEFAULT_DTYPE_BYTES)
