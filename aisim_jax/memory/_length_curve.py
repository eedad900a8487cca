"""KV bytes of one request as a function of its length, and the inverse."""

from __future__ import annotations

import math
from dataclasses import dataclass

from aisim_jax._errors import InvalidInputError, UnsupportedError
from aisim_jax.models import BUILT_FAMILIES, KV_BYTES, ModelSpec


_WINDOWED_ARCHITECTURES = frozenset({"GptOssForCausalLM"})


@dataclass(frozen=True, slots=True)
class KvCurve:
    """KV bytes of one request on one rank: `bytes_per_token * tokens / dcp`.

    bytes_per_token: bytes of one token, all layers, before decode context parallelism
    dcp: ranks that share one request's tokens
    """

    bytes_per_token: int
    dcp: int = 1

    def sequence_bytes(self, tokens: int) -> float:
        """Bytes of a request of `tokens` tokens (0 or more)."""
        return self.bytes_per_token * tokens / self.dcp

    def max_tokens(self, budget_bytes: float | int) -> int:
        """Largest number of tokens whose KV fits in `budget_bytes`; 0 below one.

        floor(budget * dcp / bytes_per_token)
        """
        return max(0, math.floor(budget_bytes * self.dcp / self.bytes_per_token))


def kv_curve(
    spec: ModelSpec, kv_quant: str, tp: int, backend: str, dcp: int = 1
) -> KvCurve:
    """Return the length curve of `spec` with cache type `kv_quant` at width `tp`.

    layers * elements per token and layer * bytes per element. Pipeline and prefill
    context parallelism leave it unchanged.
    """
    if spec.architecture in _WINDOWED_ARCHITECTURES:
        raise UnsupportedError(
            f"{spec.name}: the windowed KV cache of {spec.architecture} is not built; "
            "choose a model without sliding windows"
        )
    if dcp > 1:
        _check_dcp(spec, tp, backend, dcp)
    if spec.family not in BUILT_FAMILIES:
        raise UnsupportedError(
            f"{spec.name}: the KV cache of family {spec.family} is not built; built "
            f"families are {', '.join(sorted(BUILT_FAMILIES))}"
        )
    return KvCurve(spec.layers * spec.kv_elements_at(tp) * KV_BYTES[kv_quant], dcp)


def _check_dcp(spec: ModelSpec, tp: int, backend: str, dcp: int) -> None:
    backends = ("vllm", "sglang") if spec.is_mla else ("vllm",)
    if backend not in backends:
        raise UnsupportedError(
            f"dcp_size={dcp}: decode context parallelism of {spec.family} models needs "
            f"{' or '.join(backends)}, not {backend}; use dcp_size=1"
        )
    if tp % dcp:
        raise InvalidInputError(
            f"dcp_size={dcp} must divide tp_size={tp}; use one of "
            f"{[n for n in range(1, tp + 1) if tp % n == 0]}"
        )
    replication = tp // (spec.kv_heads or spec.heads)
    if not spec.is_mla and dcp > replication:
        raise InvalidInputError(
            f"dcp_size={dcp} exceeds the {replication}-fold replication of "
            f"the KV heads at tp_size={tp}; use dcp_size<="
            f"{max(1, replication)}"
        )
