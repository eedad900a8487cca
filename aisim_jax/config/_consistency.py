"""Rules of the canonical record that involve more than one field."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._problems import problem


if TYPE_CHECKING:
    from ._forward_pass import ForwardPassConfig


def check_consistency(config: ForwardPassConfig) -> None:
    """Raise the first rule that the record breaks, in the order of the fields."""
    _check_names(config)
    _check_profile(config)
    _check_topology(config)
    _check_experts(config)
    _check_speculation(config)
    _check_interpolation(config)
    _check_learned(config)


def _check_names(config: ForwardPassConfig) -> None:
    for name in ("model", "system", "backend_version"):
        value = getattr(config, name)
        if value is not None and not value.strip():
            raise problem("blank_identity", name, "is blank; name it or leave it out")
    for place, path in enumerate(config.systems_paths):
        if not path.strip():
            raise problem("systems_path_blank", f"systems_paths[{place}]", "is blank")


def _check_profile(config: ForwardPassConfig) -> None:
    if config.fpm_profile is None:
        return
    if config.backend_version in (None, "current", "previous", "next"):
        raise problem(
            "profile_needs_version",
            "backend_version",
            "must be a literal version when fpm_profile is given",
        )
    raise problem(
        "profile_unsupported",
        "fpm_profile",
        "profiles of unregistered models cannot be served; leave it out",
    )


def _check_topology(config: ForwardPassConfig) -> None:
    for name in ("tp", "pp", "attention_dp"):
        if getattr(config, name) == 0:
            raise problem("nonpositive_parallelism", name, "must be 1 or more, got 0")
    if config.dcp is not None and (config.dcp == 0 or config.tp % config.dcp):
        raise problem(
            "dcp_not_divisor",
            "dcp",
            f"must divide tp = {config.tp}, got {config.dcp}",
        )
    if config.cp_size == 0:
        raise problem("nonpositive_cp", "cp_size", "must be 1 or more, got 0")
    sizes = (config.moe_tp_size, config.moe_ep_size)
    if None in sizes and sizes != (None, None):
        missing = "moe_tp_size" if config.moe_tp_size is None else "moe_ep_size"
        raise problem(
            "moe_sizes_not_paired",
            missing,
            "is missing; give both MoE sizes or neither",
        )
    if config.moe_tp_size is None or config.moe_ep_size is None:
        return
    if 0 in sizes:
        name = "moe_tp_size" if config.moe_tp_size == 0 else "moe_ep_size"
        raise problem("nonpositive_parallelism", name, "must be 1 or more, got 0")
    width = config.tp * config.attention_dp * (config.cp_size or 1)
    if width != config.moe_tp_size * config.moe_ep_size:
        raise problem(
            "topology_mismatch",
            "moe_tp_size",
            f"{config.moe_tp_size} times moe_ep_size {config.moe_ep_size} must equal "
            f"tp*attention_dp*cp_size = {width}",
        )


def _check_experts(config: ForwardPassConfig) -> None:
    if config.wideep_num_slots == 0:
        raise problem(
            "nonpositive_slots", "wideep_num_slots", "must be 1 or more, got 0"
        )
    backend = config.moe_backend
    if backend not in (None, "default", "deepep_moe", "megamoe"):
        raise problem(
            "unknown_moe_backend",
            "moe_backend",
            f"{backend!r} is not one of default, deepep_moe, megamoe",
        )
    if backend not in (None, "default") and config.backend != "sglang":
        raise problem(
            "moe_backend_needs_sglang",
            "moe_backend",
            f"{backend!r} needs backend sglang, got {config.backend}",
        )
    if config.moe_kernel_source is not None and not config.moe_kernel_source.strip():
        raise problem("blank_moe_kernel_source", "moe_kernel_source", "is blank")


def _check_speculation(config: ForwardPassConfig) -> None:
    if config.nextn > 5:
        raise problem("nextn_range", "nextn", f"must be 0 to 5, got {config.nextn}")
    if config.speculation is None:
        return
    if config.nextn:
        raise problem(
            "speculation_with_nextn",
            "nextn",
            f"is {config.nextn} and a speculation block is given too; keep one",
        )
    if config.backend != "vllm":
        raise problem(
            "ngram_needs_vllm",
            "speculation.kind",
            f"ngram needs backend vllm, got {config.backend}",
        )


def _check_interpolation(config: ForwardPassConfig) -> None:
    block = config.estimator_config.fpm_interpolation
    explicit = config.estimation_mode == "fpm_interpolation"
    place = "estimator_config.fpm_interpolation"
    if explicit:
        given = {
            "enable_eplb": config.enable_eplb,
            "wideep_num_slots": config.wideep_num_slots is not None,
            "moe_backend": config.moe_backend not in (None, "default"),
            "moe_kernel_source": config.moe_kernel_source is not None,
        }
        for name in (name for name, set_ in given.items() if set_):
            raise problem(
                "interp_rejects_moe_controls",
                name,
                "does not apply to estimation_mode fpm_interpolation; leave it out",
            )
        if config.nextn:
            raise problem(
                "interp_rejects_nextn",
                "nextn",
                f"must be 0 with estimation_mode fpm_interpolation, got {config.nextn}",
            )
    label = config.fpm_fmha_quant_mode
    if label is not None and (
        not explicit or label not in ("bfloat16", "fp8", "fp8_block")
    ):
        raise problem(
            "fpm_selector_value" if explicit else "fpm_selector_needs_interp",
            "fpm_fmha_quant_mode",
            f"{label!r} needs estimation_mode fpm_interpolation and one of bfloat16, "
            "fp8, fp8_block",
        )
    if block.fpm_parquet_path is not None and not block.fpm_parquet_path.strip():
        raise problem("blank_parquet_path", f"{place}.fpm_parquet_path", "is blank")
    for kind in ("fmha", "comm"):
        name = f"{kind}_quant_mode"
        if kind in block.unrecorded_quant_modes and getattr(config, name) is not None:
            raise problem(
                "unrecorded_quant_conflict",
                name,
                "is given, but unrecorded_quant_modes says that it is not recorded",
            )
    if block.collect_coverage and not (
        explicit and block.method == "direct" and config.fallback_policy == "deny"
    ):
        raise problem(
            "coverage_needs_direct_deny",
            f"{place}.collect_coverage",
            "needs estimation_mode fpm_interpolation, method direct and "
            "fallback_policy deny",
        )
    if block.method == "direct":
        raise problem(
            "direct_needs_profile", f"{place}.method", "direct needs fpm_profile"
        )


def _check_learned(config: ForwardPassConfig) -> None:
    block = config.estimator_config.fpm_learned
    selector = config.estimator_config.selector
    learned = config.estimation_mode == "fpm_learned"
    sources = [block.artifact_path, block.checkpoint_path]
    given = sum(source is not None for source in sources)
    place = "estimator_config.fpm_learned"
    if given and not learned:
        raise problem(
            "learned_source_needs_mode",
            f"{place}.{'artifact_path' if sources[0] else 'checkpoint_path'}",
            f"needs estimation_mode fpm_learned, got {config.estimation_mode}",
        )
    if learned and given != 1:
        raise problem(
            "learned_needs_one_source",
            place,
            f"needs exactly one of artifact_path and checkpoint_path, got {given}",
        )
    if learned and config.fallback_policy != "deny":
        raise problem(
            "learned_needs_deny",
            "fallback_policy",
            f"must be deny with estimation_mode fpm_learned, got "
            f"{config.fallback_policy}",
        )
    if learned and block.adaptation != "frozen" and block.checkpoint_path is None:
        raise problem(
            "learned_needs_checkpoint",
            f"{place}.checkpoint_path",
            f"is needed for adaptation {block.adaptation}",
        )
    correction = config.estimator_config.correction
    causal = block.adaptation == "causal_selector"
    if causal and not (correction.enabled and correction.mode in ("auto", "hybrid")):
        raise problem(
            "causal_needs_correction",
            "estimator_config.correction",
            "must be enabled with mode auto or hybrid for causal_selector",
        )
    if selector != type(selector)() and not causal:
        raise problem(
            "selector_needs_causal",
            "estimator_config.selector",
            "only applies with fpm_learned.adaptation causal_selector",
        )
