"""Specifications, data roots and queryable versions."""

from __future__ import annotations

from pathlib import Path

import pytest
from systems_trees import (
    VERSIONS,
    gemm_rows,
    moe_row,
    write_rows,
    write_tree,
    write_yaml,
)

from aisim_jax._errors import (
    InvalidInputError,
    MissingPerfDataError,
    UnlistedVersionError,
)
from aisim_jax.systems import (
    import_tables,
    list_profiles,
    load_system,
    load_tables,
    resolve_version,
    system_names,
)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AISIM_CACHE_DIR", str(tmp_path / "cache"))
    tree = write_tree(tmp_path / "systems")
    write_rows(tree, "gemm/vllm/0.24.0", "gemm_perf", gemm_rows((1, 2, 3, 1.0)))
    return tree


def test_a_system_knows_its_rates_and_where_they_come_from() -> None:
    spec = load_system("h200_sxm")
    assert spec.mem_bw_bytes_per_s == 4.8e12
    assert spec.mem_capacity_bytes == 151_397_597_184
    assert spec.tensor_flops["fp8"] == 1978e12
    assert "fp4" not in spec.tensor_flops
    assert spec.sm_version == 90
    assert spec.nccl_mem_bytes[4] == 411_041_792
    assert spec.nccl_version == "2.26.2"
    assert spec.origin.startswith("aisimulate 0.13")


def test_bandwidth_falls_from_node_to_rack_to_beyond() -> None:
    spec = load_system("gb200")
    rates = [spec.p2p_bw_bytes_per_s(gpus) for gpus in (4, 8, 72, 144)]
    assert rates == [900e9, 900e9, 900e9, 50e9]
    assert load_system("h100_sxm").p2p_bw_bytes_per_s(16) == 50e9


def test_every_system_of_the_reference_is_described() -> None:
    names = system_names()
    assert len(names) == 14
    assert {"a100_sxm", "b60", "gb300", "l4", "rtx_pro_6000_server"} <= set(names)


def test_an_unknown_system_lists_the_known_ones() -> None:
    with pytest.raises(InvalidInputError, match=r"'h300' is unknown; .*h200_sxm"):
        load_system("h300")


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (None, "1.3.0rc20"),
        ("current", "1.3.0rc20"),
        ("next", "1.3.0rc23"),
        ("1.3.0rc20", "1.3.0rc20"),
        ("1.3.0rc23", "1.3.0rc23"),
    ],
)
def test_slots_and_their_literals_are_queryable(
    request_: str | None, version: str
) -> None:
    assert resolve_version("h200_sxm", "trtllm", request_) == version


def test_systems_with_their_own_slots_have_no_next() -> None:
    assert resolve_version("a100_sxm", "vllm") == "0.14.0"
    assert resolve_version("b60", "vllm", "previous") == "0.26.0"
    with pytest.raises(UnlistedVersionError, match=r"use one of 0\.14\.0 \(current\)"):
        resolve_version("a100_sxm", "vllm", "next")


def test_other_versions_and_names_are_refused_with_what_is_listed() -> None:
    listed = r"'0\.19\.0' cannot be .*0\.24\.0 \(current\), 0\.31\.0 \(next\)"
    with pytest.raises(UnlistedVersionError, match=listed):
        resolve_version("h200_sxm", "vllm", "0.19.0")
    with pytest.raises(InvalidInputError, match="'ollama' is unknown; use one of trt"):
        resolve_version("h200_sxm", "ollama")
    with pytest.raises(MissingPerfDataError, match="l4 has no measured data for vllm"):
        resolve_version("l4", "vllm")


def test_missing_tables_name_the_nearest_and_the_remedy() -> None:
    words = r"h200_sxm, vllm 0\.31\.0 .*nearest: h200_sxm, vllm 0\.24\.0; import them"
    with pytest.raises(MissingPerfDataError, match=words):
        load_tables("h200_sxm", "vllm", "next")
    words = r"a100_sxm, vllm 0\.14\.0 .*nearest: b200_sxm, vllm 0\.24\.0"
    with pytest.raises(MissingPerfDataError, match=words):
        load_tables("a100_sxm", "vllm")


def test_roots_are_tried_in_order_and_default_is_the_packaged_one(tree: Path) -> None:
    root = str(tree)
    names = system_names([root, "DEFAULT"])
    assert "toy" in names and "h200_sxm" in names
    assert system_names([root]) == ["toy"]
    assert load_tables("h200_sxm", "vllm", None, [root, "default"]).root == "default"
    assert load_tables("toy", "vllm", None, ["default", root, root]).root == root


def test_bad_roots_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="is not a folder"):
        system_names([str(tmp_path / "nowhere")])
    with pytest.raises(InvalidInputError, match="a blank entry"):
        system_names([" "])
    with pytest.raises(InvalidInputError, match="neither imported profiles"):
        system_names([str(tmp_path)])


def test_relative_roots_are_made_absolute(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tree.parent)
    monkeypatch.setenv("HOME", str(tree.parent))
    assert load_tables("toy", "vllm", None, ["systems"]).root == str(tree)
    assert load_tables("toy", "vllm", None, ["~/systems"]).root == str(tree)


def test_a_tree_is_imported_once_and_again_when_it_changes(
    tree: Path, tmp_path: Path
) -> None:
    first = load_tables("toy", "vllm", None, [str(tree)])
    assert load_tables("toy", "vllm", None, [str(tree)]) is first
    assert first.path.is_relative_to(tmp_path / "cache")
    changed = gemm_rows((1, 2, 3, 1.0), (2, 2, 3, 2.0))
    write_rows(tree, "gemm/vllm/0.24.0", "gemm_perf", changed)
    gemm = load_tables("toy", "vllm", None, [str(tree)]).gemm("bfloat16")
    assert gemm is not None
    assert gemm.m.tolist() == [1, 2]


def test_next_is_the_newest_version_of_all_systems_without_own_slots(
    tree: Path,
) -> None:
    write_rows(tree, "moe/vllm/0.26.0", "moe_perf", [moe_row(1.0)])
    write_rows(tree, "moe/vllm/dev-abc", "moe_perf", [moe_row(1.0)])
    assert resolve_version("toy", "vllm", "next", [str(tree)]) == "0.26.0"
    own = {"overrides": {"toy": {"vllm": {"current": "0.24.0", "previous": None}}}}
    write_yaml(tree / "query_versions.yaml", VERSIONS | own)
    with pytest.raises(UnlistedVersionError, match="'next' cannot be queried"):
        resolve_version("toy", "vllm", "next", [str(tree)])


def test_an_imported_version_may_be_asked_for_although_no_slot_names_it(
    tree: Path, tmp_path: Path
) -> None:
    write_rows(tree, "gemm/vllm/0.20.0", "gemm_perf", gemm_rows((1, 2, 3, 7.0)))
    out = str(tmp_path / "out")
    import_tables(tree, "toy", "vllm", "0.20.0", out)
    assert load_tables("toy", "vllm", "0.20.0", [out]).version == "0.20.0"
    with pytest.raises(UnlistedVersionError, match=r"0\.20\.0"):
        load_tables("toy", "vllm", "0.20.0", [str(tree)])


def test_the_listing_tells_what_an_archive_holds(tree: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    import_tables(tree, "toy", "vllm", None, out)
    (record,) = list_profiles([out])
    assert (record.system, record.backend, record.version) == ("toy", "vllm", "0.24.0")
    assert record.tables == ("gemm/bfloat16",)
    assert record.rows == 1
    assert record.origin == "folder systems"
    assert record.size_bytes > 0
    assert record.digest.startswith("sha256:")
