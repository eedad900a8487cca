"""One constructor: which data root answers, and one sentence where none can."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from aisim_jax import AisimError, best_available, normalize_config
from aisim_jax._errors import (
    InvalidInputError,
    MissingPerfDataError,
    MissingSystemFlopsError,
    UnknownModelError,
    UnlistedVersionError,
    UnsupportedError,
)
from aisim_jax.systems._roots import packaged_profiles


BASE: dict[str, Any] = {
    "model": "meta-llama/Meta-Llama-3.1-8B",
    "system": "h200_sxm",
    "backend": "vllm",
    "worker_type": "aggregated",
    "tp": 2,
}


def root_of(model: Any) -> str:
    return model.diagnostics()["provenance"]["selected_systems_root"]


@pytest.fixture
def own_root(tmp_path: Path) -> str:
    """A data root with one engine of one system."""
    place = tmp_path / "own" / "tables" / "h200_sxm" / "vllm"
    packaged = packaged_profiles()
    shutil.copytree(packaged / "tables" / "h200_sxm" / "vllm", place)
    shutil.copy(packaged / "systems.json", tmp_path / "own")
    shutil.copy(packaged / "query_versions.json", tmp_path / "own")
    return str(tmp_path / "own")


def test_the_first_root_that_can_answer_is_used(own_root: str) -> None:
    paths = {"systems_paths": [own_root, "default"]}
    assert root_of(best_available(BASE | paths)) == own_root
    assert root_of(best_available(BASE | paths | {"backend": "trtllm"})) == "default"
    paths = {"systems_paths": ["default", own_root]}
    assert root_of(best_available(BASE | paths)) == "default"
    assert root_of(best_available(BASE)) == "default"


def test_roots_that_failed_are_reported(own_root: str) -> None:
    config = BASE | {"systems_paths": [own_root, "default"], "backend": "trtllm"}
    provenance = best_available(config).diagnostics()["provenance"]
    (failure,) = provenance["selection_failures"]
    assert own_root in failure


def test_without_an_answer_the_first_roots_reason_is_given(own_root: str) -> None:
    paths = {"systems_paths": [own_root, "default"]}
    with pytest.raises(MissingPerfDataError, match="h100_sxm, vllm") as error:
        best_available(
            BASE | paths | {"system": "h100_sxm", "systems_paths": [own_root]}
        )
    assert own_root in str(error.value)
    with pytest.raises(InvalidInputError, match="system 'none' is unknown"):
        best_available(BASE | paths | {"system": "none"})


def test_a_normalised_record_builds_the_same_model() -> None:
    record = normalize_config(BASE)
    model = best_available(record)
    assert model.config == record
    assert model.ready
    expected = best_available(BASE).predict_decode_latency_total(8, 8000)
    assert model.predict_decode_latency_total(8, 8000) == expected


def test_the_answer_says_where_it_comes_from() -> None:
    with best_available(BASE) as model:
        facts = model.diagnostics()
    assert facts["source"] == "op_level"
    assert facts["readiness"] == "ready"
    provenance = facts["provenance"]
    assert provenance["requested_estimation_mode"] == "auto"
    assert provenance["selected_estimation_mode"] == "op_level"
    data = provenance["data"]
    assert (data["system"], data["backend"]) == ("h200_sxm", "vllm")
    assert data["version"] == "0.24.0"
    assert len(data["digest"]) >= 16
    assert provenance["precision"]["gemm"] == "bfloat16"


def test_the_role_restricts_no_query() -> None:
    answers = set()
    for role in ("prefill", "decode", "aggregated"):
        model = best_available(BASE | {"worker_type": role})
        prefill = model.predict_prefill_latency_total(1, 2048, 0)
        answers.add((prefill, model.predict_decode_latency_total(16, 34816)))
    assert len(answers) == 1


def test_stages_only_add_the_hand_over() -> None:
    one = best_available(BASE).predict_prefill_latency_total(1, 2048, 0)
    two = best_available(BASE | {"pp": 2}).predict_prefill_latency_total(1, 2048, 0)
    assert one is not None and two is not None
    wire_s = 2048 * 4096 * 2 / 50e9 + 1e-5
    assert two - one == pytest.approx(wire_s * 1e3, rel=1e-9)


def test_other_precisions_are_taken_and_change_the_price() -> None:
    half = best_available(BASE).predict_prefill_latency_total(1, 8192, 0)
    modes = {"gemm_quant_mode": "fp8", "kvcache_quant_mode": "fp8"}
    eight = best_available(BASE | modes)
    assert (eight.precision.gemm, eight.precision.kv) == ("fp8", "fp8")
    fast = eight.predict_prefill_latency_total(1, 8192, 0)
    assert half is not None and fast is not None and fast < half


def test_speed_of_light_is_faster_than_measured_and_hybrid_is_measured() -> None:
    measured = best_available(BASE)
    bound = best_available(BASE | {"database_mode": "SOL"})
    hybrid = best_available(BASE | {"database_mode": "HYBRID"})
    for call in ((1, 2048, 0), (8, 16_000, 4000)):
        figure = measured.predict_prefill_latency_total(*call)
        assert hybrid.predict_prefill_latency_total(*call) == figure
        least = bound.predict_prefill_latency_total(*call)
        assert least is not None and figure is not None and least < figure


def test_draft_tokens_add_rows_to_planned_steps_only() -> None:
    plain = best_available(BASE)
    draft = {"kind": "ngram", "params": {"num_speculative_tokens": 3}}
    for change in ({"nextn": 3}, {"speculation": draft}):
        deep = best_available(BASE | change)
        assert deep.nextn == 3
        step, rows = deep.decode_step_ms(16, 2048), deep.predict_decode_latency_total
        assert step == rows(64, 64 * 2048)
        slower = plain.predict_decode_latency_total(64, 64 * 2048)
        assert step is not None and slower is not None and step > slower


@pytest.mark.parametrize(
    ("change", "kind", "place"),
    [
        ({"model": "acme/none"}, UnknownModelError, "acme/none"),
        ({"system": "none"}, InvalidInputError, "'none'"),
        ({"backend": "none"}, InvalidInputError, "backend"),
        ({"backend_version": "0.0.1"}, UnlistedVersionError, "0.0.1"),
        ({"system": "gb200"}, MissingPerfDataError, "gb200"),
        ({"tp": 3}, InvalidInputError, "tp=3 does not divide 32"),
        ({"tp": 0}, InvalidInputError, "tp"),
        ({"tp": -2}, InvalidInputError, "tp"),
        ({"cp_size": 2}, UnsupportedError, "cp=2"),
        ({"dcp": 2}, UnsupportedError, "dcp"),
        ({"database_mode": "EMPIRICAL"}, UnsupportedError, "EMPIRICAL"),
        ({"database_mode": "SOL_FULL"}, UnsupportedError, "SOL_FULL"),
        ({"database_mode": "none"}, InvalidInputError, "database_mode"),
        ({"estimation_mode": "fpm_regression"}, UnsupportedError, "fpm_regression"),
        ({"estimation_mode": "none"}, InvalidInputError, "estimation_mode"),
        ({"attention_backend": "none"}, UnsupportedError, "attention_backend"),
        ({"enable_eplb": True}, UnsupportedError, "enable_eplb"),
        ({"strict_provenance": True}, UnsupportedError, "strict_provenance"),
        ({"gemm_quant_mode": "nvfp4"}, MissingSystemFlopsError, "fp4"),
        ({"gemm_quant_mode": "int3"}, InvalidInputError, "gemm"),
        ({"kvcache_quant_mode": "int3"}, InvalidInputError, "kv"),
        ({"worker_type": "agg"}, InvalidInputError, "worker_type"),
        ({"moe_tp_size": 4}, InvalidInputError, "moe_ep_size"),
        ({"unknown": 1}, InvalidInputError, "unknown"),
        ({"systems_paths": ["/none"]}, InvalidInputError, "/none"),
    ],
    ids=str,
)
def test_a_refusal_is_one_sentence_that_names_the_value(
    change: dict[str, Any], kind: type[AisimError], place: str
) -> None:
    with pytest.raises(kind, match=place) as error:
        best_available(BASE | change)
    message = str(error.value)
    assert "\n" not in message
    assert 20 < len(message) < 400
