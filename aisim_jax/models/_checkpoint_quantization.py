"""What a checkpoint's own files say about its precision.

Read from `hf_quant_config.json` (ModelOpt) and from `quantization_config` in
config.json (fp8, mxfp4, compressed-tensors, modelopt). The sidecar wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


# Where the algorithm name alone decides: (gemm mode, expert mode).
_DIRECT: dict[str, tuple[str, str]] = {
    "nvfp4": ("nvfp4", "nvfp4"),
    "mxfp4": ("bfloat16", "w4a16_mxfp4"),
    "fp8_pb_wo": ("fp8_block", "fp8_block"),
    "fbgemm_fp8": ("fp8", "fp8"),
    "awq": ("int4_wo", "int4_wo"),
    "gptq": ("int4_wo", "int4_wo"),
}

# Algorithms whose checkpoints are served with an fp8 cache unless they say otherwise.
_FP8_CACHE_ALGORITHMS = frozenset({"fp8", "fp8_pb_wo", "nvfp4"})

# Mixed precision: algorithm of a part -> mode, in order of preference.
_MIXED_GEMM = ("mxfp8", "fp8", "w4a16_nvfp4", "nvfp4")
_MIXED_MOE = ("w4a16_nvfp4", "nvfp4", "mxfp8", "fp8")

_Q_MARKERS = ("q_a_proj", "q_b_proj", "q_proj")
_KV_MARKERS = ("kv_a_proj", "kv_b_proj", "kv_proj", "k_proj", "v_proj")
_O_MARKERS = ("o_proj",)


@dataclass(frozen=True, slots=True)
class CheckpointQuantization:
    """Precision facts of a checkpoint, before any backend or caller has a say.

    gemm, moe, kv, fmha: mode of the linear layers, experts, cache, prefill attention
    excluded: module patterns that stay in bfloat16
    block_width: edge of the tiles that share a scale in fp8_block weights
    unknown: name of an algorithm that no rule covers, "" otherwise
    names_cache: whether the files say what the cache holds
    """

    gemm: str = "bfloat16"
    moe: str = "bfloat16"
    kv: str = "bfloat16"
    fmha: str = "bfloat16"
    excluded: tuple[str, ...] = ()
    block_width: int = 128
    unknown: str = ""
    names_cache: bool = False

    def excludes(self, projection: str) -> bool:
        """Whether attention projection "q", "kv" or "o" stays in bfloat16.

        Substring rule: a pattern that names a projection excludes it; one that names
        self_attn but no projection excludes all of them.
        """
        markers = {"q": _Q_MARKERS, "kv": _KV_MARKERS, "o": _O_MARKERS}[projection]
        return any(
            _names(pattern, markers)
            or (
                "self_attn" in pattern
                and not _names(pattern, _Q_MARKERS + _KV_MARKERS + _O_MARKERS)
            )
            for pattern in self.excluded
        )

    @property
    def excludes_shared_experts(self) -> bool:
        """Whether the shared experts stay in bfloat16."""
        return any("shared_expert" in pattern for pattern in self.excluded)


def infer_quantization(
    config: Mapping[str, Any], sidecar: Mapping[str, Any] | None
) -> CheckpointQuantization:
    """Precision facts of parsed config.json `config` and hf_quant_config.json."""
    declared = _declared(config)
    modelopt = (sidecar or {}).get("quantization") or {}
    algorithm = (
        modelopt.get("quant_algo")
        or declared.get("quant_algo")
        or declared.get("quant_method")
        or ""
    )
    algorithm = str(algorithm).lower()
    gemm, moe, unknown = _weight_modes(algorithm, declared, modelopt)
    dtypes = (config.get("expert_dtype"), declared.get("expert_dtype"))
    if moe == "fp8_block" and "fp4" in dtypes:
        moe = "w4a8_mxfp4_mxfp8"
    excluded = tuple(
        dict.fromkeys(
            [
                *_strings(declared, "modules_to_not_convert"),
                *_strings(declared, "exclude_modules"),
                *_strings(declared, "ignore"),
                *_strings(modelopt, "exclude_modules"),
                *_strings(modelopt, "ignore"),
            ]
        )
    )
    cache = _cache_entry(declared, modelopt)
    kv, fmha, unknown_cache = _cache_modes(algorithm, cache)
    block = _block_size(declared, modelopt)
    return CheckpointQuantization(
        gemm=gemm,
        moe=moe,
        kv=kv,
        fmha=fmha,
        excluded=excluded,
        block_width=block[0] if block else 128,
        unknown=unknown or unknown_cache,
        names_cache=cache != "",
    )


def _declared(config: Mapping[str, Any]) -> Mapping[str, Any]:
    nested = config.get("text_config") or config.get("llm_config") or {}
    return config.get("quantization_config") or nested.get("quantization_config") or {}


def _strings(section: Mapping[str, Any], key: str) -> list[str]:
    return [str(item) for item in section.get(key) or ()]


def _names(pattern: str, markers: Iterable[str]) -> bool:
    return any(marker in pattern for marker in markers)


def _weight_modes(
    algorithm: str, declared: Mapping[str, Any], modelopt: Mapping[str, Any]
) -> tuple[str, str, str]:
    """(gemm mode, expert mode, name of an unknown algorithm or "")."""
    if algorithm in ("", "none"):
        return "bfloat16", "bfloat16", ""
    if algorithm == "fp8":
        return *_fp8_modes(declared, modelopt), ""
    if algorithm == "compressed-tensors":
        return _compressed_modes(declared)
    if algorithm == "mixed_precision":
        return *_mixed_modes(declared, modelopt), ""
    if algorithm in _DIRECT:
        return *_DIRECT[algorithm], ""
    return "bfloat16", "bfloat16", algorithm


def _fp8_modes(
    declared: Mapping[str, Any], modelopt: Mapping[str, Any]
) -> tuple[str, str]:
    if _block_size(declared, modelopt):
        return "fp8_block", "fp8_block"
    return ("fp8" if _dynamic_activations(declared) else "fp8_static"), "fp8"


def _block_size(
    declared: Mapping[str, Any], modelopt: Mapping[str, Any]
) -> list[int] | None:
    return declared.get("weight_block_size") or modelopt.get("weight_block_size")


def _dynamic_activations(declared: Mapping[str, Any]) -> bool:
    return declared.get("activation_scheme") == "dynamic" or any(
        (group.get("input_activations") or {}).get("dynamic")
        for group in (declared.get("config_groups") or {}).values()
    )


def _compressed_modes(declared: Mapping[str, Any]) -> tuple[str, str, str]:
    """One weight scheme; experts and the rest may each be left out of it."""
    groups = (declared.get("config_groups") or {}).values()
    weights = next((g["weights"] for g in groups if g.get("weights")), {})
    bits, kind = weights.get("num_bits"), weights.get("type")
    block = weights.get("strategy") == "block"
    modes: dict[tuple[object, object], str] = {
        (4, "int"): "int4_wo",
        (8, "int"): "int8_wo",
        (8, "float"): "fp8_block" if block else "fp8",
        (4, "float"): "w4a16_mxfp4",
    }
    mode = modes.get((bits, kind))
    if mode is None:
        return "bfloat16", "bfloat16", f"compressed-tensors {kind}{bits}"
    ignored = _strings(declared, "ignore")
    gemm = "bfloat16" if any("self_attn" in p for p in ignored) else mode
    moe = "bfloat16" if any(_routed_expert(p) for p in ignored) else mode
    return gemm, moe, ""


def _mixed_modes(
    declared: Mapping[str, Any], modelopt: Mapping[str, Any]
) -> tuple[str, str]:
    """Modes of a per-layer map: algorithms of routed experts, and of all others."""
    experts: set[str] = set()
    others: set[str] = set()
    for section in (declared, modelopt):
        for name, entry in (section.get("quantized_layers") or {}).items():
            part = experts if _routed_expert(name) else others
            part.add(str(entry.get("quant_algo", "")).lower())
    for group in (declared.get("config_groups") or {}).values():
        for target in group.get("targets") or ():
            part = experts if _routed_expert(target) else others
            part.add(_group_algorithm(group))
    if str(declared.get("quant_method", "")).lower() == "fp8":
        gemm = _fp8_modes(declared, modelopt)[0]
    else:
        gemm = _mode_of(
            next((a for a in _MIXED_GEMM if a in others), ""),
            "fp8" if _dynamic_activations(declared) else "fp8_static",
        )
    moe = _mode_of(next((a for a in _MIXED_MOE if a in experts), ""), "fp8")
    return gemm, moe


def _group_algorithm(group: Mapping[str, Any]) -> str:
    return "fp8" if (group.get("weights") or {}).get("num_bits") == 8 else "nvfp4"


def _mode_of(algorithm: str, fp8: str) -> str:
    return {"": "bfloat16", "mxfp8": "fp8_block", "fp8": fp8}.get(algorithm, algorithm)


def _routed_expert(path: str) -> bool:
    return "experts" in path and "shared_expert" not in path


def _cache_entry(declared: Mapping[str, Any], modelopt: Mapping[str, Any]) -> str:
    """What the files call the type of the cache, "" where they say nothing."""
    entry = (
        modelopt.get("kv_cache_quant_algo") or declared.get("kv_cache_quant_algo") or ""
    )
    scheme = declared.get("kv_cache_scheme")
    if not entry and isinstance(scheme, Mapping) and scheme.get("type") == "float":
        entry = "fp8"
    return str(entry).lower()


def _cache_modes(algorithm: str, entry: str) -> tuple[str, str, str]:
    """(cache mode, prefill attention mode, name of an unknown cache type or "").

    Attention runs in fp8 where a quantised checkpoint keeps an fp8 cache.
    """
    if entry in ("", "bfloat16") and algorithm in _FP8_CACHE_ALGORITHMS:
        entry = "fp8"
    if entry == "fp8":
        quantised = algorithm not in ("", "none")
        return "fp8", "fp8" if quantised else "bfloat16", ""
    known = ("", "none", "bfloat16")
    return "bfloat16", "bfloat16", "" if entry in known else f"kv cache {entry}"
