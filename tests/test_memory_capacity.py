"""KV capacity equals the reference figures to the byte, errors included."""

from __future__ import annotations

from typing import Any

import pytest
from goldens import load_golden
from memory_cases import is_built

from aisim_jax._errors import (
    AisimError,
    InvalidInputError,
    NoKvBudgetError,
    UnknownModelError,
    UnlistedVersionError,
    UnsupportedError,
)
from aisim_jax.memory import estimate_kv_cache


CASES = load_golden("kv/capacity_cases.json")["cases"]

EXCEPTIONS: dict[str, type[AisimError]] = {
    "no_kv_budget": NoKvBudgetError,
    "backend_version_unlisted": UnlistedVersionError,
    "model_config_unavailable": UnknownModelError,
    "cp_unsupported_for_family_backend": UnsupportedError,
    "dcp_unsupported_for_family_backend": UnsupportedError,
}


def _arguments(case: dict[str, Any]) -> dict[str, Any]:
    words = {"nan": float("nan"), "inf": float("inf")}
    return {
        name: words.get(value, value) if isinstance(value, str) else value
        for name, value in case["input"].items()
    }


def _is_known(case: dict[str, Any]) -> bool:
    model = case["input"]["model_path"]
    return is_built(model) or "no-such" in model


BUILT = [case for case in CASES if _is_known(case)]
RESULTS = [case for case in BUILT if "ok" in case]
ERRORS = [case for case in BUILT if "error" in case]


def test_figures_cover_results_and_errors():
    assert len(RESULTS) >= 150 and len(ERRORS) >= 40


@pytest.mark.parametrize("case", RESULTS, ids=lambda case: case["id"])
def test_capacity_is_exact(case):
    assert estimate_kv_cache(**_arguments(case)).as_dict() == case["ok"]


@pytest.mark.parametrize("case", ERRORS, ids=lambda case: case["id"])
def test_error_has_its_category_and_one_sentence(case):
    expected = EXCEPTIONS.get(case["error"]["category"], InvalidInputError)
    with pytest.raises(expected) as caught:
        estimate_kv_cache(**_arguments(case))
    assert "\n" not in str(caught.value) and len(str(caught.value)) > 20


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if not _is_known(case) and case["tag"] == "matrix"],
    ids=lambda case: case["id"],
)
def test_unbuilt_family_is_refused_by_name(case):
    with pytest.raises(UnsupportedError, match="not built"):
        estimate_kv_cache(**_arguments(case))


BASE: dict[str, Any] = {
    "model_path": "meta-llama/Meta-Llama-3.1-8B",
    "system": "h100_sxm",
    "backend": "vllm",
    "max_num_tokens": 8192,
    "max_batch_size": 256,
    "memory_fraction_kind": "of_total",
    "memory_fraction_value": 0.9,
}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"tp_size": 0}, "tp_size is 0"),
        ({"max_num_tokens": -1}, "max_num_tokens is -1"),
        ({"reserved_bytes": -1}, "reserved_bytes is -1"),
        ({"gpu_memory_capacity_bytes_override": 0}, "capacity_bytes_override is 0"),
        ({"context_length": 8192}, "needs fpm_profile"),
        ({"attention_backend": "nope"}, "attention_backend 'nope'"),
        ({"tp_size": 16, "dcp_size": 3}, "must divide tp_size=16"),
    ],
)
def test_bad_argument_is_named_with_its_value(arguments, said):
    with pytest.raises(InvalidInputError, match=said):
        estimate_kv_cache(**BASE | arguments)


def test_first_broken_rule_is_the_one_reported():
    with pytest.raises(InvalidInputError, match="memory_fraction_value"):
        estimate_kv_cache(
            **BASE | {"memory_fraction_value": 2.0, "cp_size": 0, "nextn": -1}
        )


@pytest.mark.parametrize(
    "arguments",
    [
        {"fpm_profile": {}},
        {
            "max_batch_size": 1,
            "dcp_size": 2,
            "backend": "trtllm",
            "memory_fraction_kind": "of_free",
            "tp_size": 16,
        },
    ],
)
def test_what_is_not_built_says_so(arguments):
    with pytest.raises(UnsupportedError):
        estimate_kv_cache(**BASE | arguments)


def test_naive_path_refuses_what_it_would_ignore():
    naive: dict[str, Any] = BASE | {
        "tp_size": 3,
        "allow_naive_fallback": True,
        "gpu_memory_capacity_bytes_override": 80 * 2**30,
    }
    assert estimate_kv_cache(**naive).source == "naive_fallback"
    with pytest.raises(InvalidInputError, match="does not divide"):
        estimate_kv_cache(**naive, reserved_bytes=5)


def test_no_budget_never_falls_back_to_the_naive_path():
    starved: dict[str, Any] = BASE | {
        "memory_fraction_value": 0.0,
        "allow_naive_fallback": True,
        "gpu_memory_capacity_bytes_override": 80 * 2**30,
    }
    with pytest.raises(NoKvBudgetError):
        estimate_kv_cache(**starved)
