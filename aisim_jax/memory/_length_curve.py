"""KV bytes of one request as a function of its length, and the inverse."""

from __future__ import annotations

import math
from dataclasses import dataclass

from aisim_jax._errors import InvalidInputError, UnsupportedError
from aisim_jax.models import KV_BYTES, ModelSpec


# Latent widths when the configuration names none.
_DEFAULT_KV_LORA = 512
_DEFAULT_ROPE_DIM = 64

_LINEAR_GQA_FAMILIES = frozenset({"LLAMA", "MOE"})
_LINEAR_MLA_FAMILIES = frozenset({"DEEPSEEK", "KIMIK25"})
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

    Grouped-query attention: 2 * ceil(kv_heads / tp) * head_dim * layers * element.
    Latent attention: layers * (kv_lora + rope) * element, replicated over tp. Pipeline
    and prefill context parallelism leave it unchanged.
    """
    element_bytes = KV_BYTES[kv_quant]
    if spec.architecture in _WINDOWED_ARCHITECTURES:
        raise UnsupportedError(
            f"{spec.name}: the windowed KV cache of {spec.architecture} is not built; "
            "choose a model without sliding windows"
        )
    if dcp > 1:
        _check_dcp(spec, tp, backend, dcp)
    if spec.family in _LINEAR_GQA_FAMILIES:
        kv_heads = -(-(spec.kv_heads or spec.heads) // tp)
        rate = 2 * kv_heads * spec.head_dim * spec.layers * element_bytes
        return KvCurve(rate, dcp)
    if spec.family in _LINEAR_MLA_FAMILIES:
        kv_lora = spec.kv_lora or _DEFAULT_KV_LORA
        rope_dim = spec.rope_dim or _DEFAULT_ROPE_DIM
        return KvCurve(spec.layers * (kv_lora + rope_dim) * element_bytes, dcp)
    raise UnsupportedError(
        f"{spec.name}: the KV cache of family {spec.family} is not built; built "
        f"families are {', '.join(sorted(_LINEAR_GQA_FAMILIES | _LINEAR_MLA_FAMILIES))}"
    )


def _check_dcp(spec: ModelSpec, tp: int, backend: str, dcp: int) -> None:
    latent = spec.family in _LINEAR_MLA_FAMILIES
    backends = ("vllm", "sglang") if latent else ("vllm",)
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
    if not latent and dcp > replication:
        raise InvalidInputError(
            f"dcp_size={dcp} exceeds the {replication}-fold replication of "
            f"the KV heads at tp_size={tp}; use dcp_size<="
            f"{max(1, replication)}"
        )
