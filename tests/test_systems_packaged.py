"""The embedded profiles hold the published figures, small and complete."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from goldens import load_golden

from aisim_jax._errors import MissingPerfDataError, UnsupportedError
from aisim_jax.systems import (
    AttentionKey,
    MlaKey,
    PerfTables,
    RaggedGrid,
    list_profiles,
    load_tables,
    verify_archive,
)


PROFILES = Path(__file__).resolve().parent.parent / "profiles"
PHASES = {"ContextAttention": "context", "GenerationAttention": "generation"}


def test_three_systems_and_three_engines_fit_in_twenty_megabytes() -> None:
    records = list_profiles()
    assert len({(r.system, r.backend) for r in records}) == 9
    assert sum(record.size_bytes for record in records) <= 20e6
    assert sum(record.rows for record in records) > 3_000_000


def test_archives_match_their_digests_and_the_published_list() -> None:
    published = (PROFILES / "README.md").read_text()
    for record in list_profiles():
        place = PROFILES / "tables" / record.system / record.backend
        meta = verify_archive(place / f"{record.version}.npz")
        assert meta["digest"] in published


@pytest.mark.parametrize("backend", ["sglang", "trtllm", "vllm"])
def test_measured_rows_are_found_bit_for_bit(backend: str) -> None:
    rows = [
        r for r in load_golden("systems/measured_rows.json") if r["backend"] == backend
    ]
    assert len(rows) > 100
    for row in rows:
        latency_ms, origin = lookup(load_tables(row["system"], backend), row)
        assert (latency_ms, origin) == (row["latency"], 0), row


def lookup(tables: PerfTables, row: dict[str, Any]) -> tuple[float, int]:
    """(latency, origin) at the coordinates of a row of the reference's files."""
    match row["table"]:
        case "gemm_perf":
            gemm = tables.gemm(row["gemm_dtype"])
            assert gemm is not None
            site = (gemm.n == row["n"]) & (gemm.k == row["k"])
            return at(gemm, np.flatnonzero(site).item(), place(gemm.m, row["m"]))
        case "context_attention_perf":
            grid = tables.context_attention()[row["kernel_source"]][attention_key(row)]
            return in_grid(grid, row["num_heads"], row["isl"], row["batch_size"])
        case "generation_attention_perf":
            lanes = tables.generation_attention()
            grid = lanes[row["kernel_source"]][attention_key(row)]
            sequence = row["isl"] + row["step"]
            return in_grid(grid, row["num_heads"], row["batch_size"], sequence)
        case "moe_perf":
            is_low = row["kernel_source"] == "moe_torch_flow_min_latency"
            renamed = "sglang_mxfp4" in row["kernel_source"]
            quant = row["moe_dtype"] + ("_trtllm" if renamed else "")
            curves = tables.moe_low_latency() if is_low else tables.moe()
            moe = curves[quant, row["distribution"]]
            names = ("topk", "num_experts", "hidden_size", "inter_size")
            names += ("moe_tp_size", "moe_ep_size")
            shape = np.all(moe.shapes == [row[name] for name in names], axis=1)
            tokens = place(moe.tokens, row["num_tokens"])
            return at(moe, np.flatnonzero(shape).item(), tokens)
        case "context_mla_perf":
            key = MlaKey(row["mla_dtype"], row["kv_cache_dtype"])
            grid = tables.context_mla()[key]
            return in_grid(grid, row["num_heads"], row["isl"], row["batch_size"])
        case "mla_generation_module_perf":
            key = MlaKey("", row["kv_cache_dtype"], row["gemm_type"], 128)
            grid = tables.generation_mla_module()[key]
            sequence = row["isl"] + row["step"]
            return in_grid(grid, row["num_heads"], row["batch_size"], sequence)
        case "mla_bmm_perf":
            bmm = tables.bmm(row["bmm_dtype"], row["op_name"] == "mla_gen_pre")
            assert bmm is not None
            heads = place(bmm.heads, row["num_heads"])
            return at(bmm, heads, place(bmm.tokens, row["num_tokens"]))
        case "scale_matrix_perf":
            scale = tables.scale_matrix()
            assert scale is not None
            return at(scale, place(scale.m, row["m"]), place(scale.k, row["k"]))
    raise AssertionError(row["table"])


def attention_key(row: dict[str, Any]) -> AttentionKey:
    is_plain = row["num_heads"] == row["num_key_value_heads"]
    return AttentionKey(
        row.get("attn_dtype", ""),
        row["kv_cache_dtype"],
        0 if is_plain else row["num_key_value_heads"],
        row["head_dim"],
        row["window_size"],
    )


def in_grid(grid: RaggedGrid, *coordinates: int) -> tuple[float, int]:
    return at(grid, *map(place, grid.axes, coordinates))


def place(axis: np.ndarray, value: int) -> int:
    return np.flatnonzero(axis == value).item()


def at(table: Any, *index: int) -> tuple[float, int]:
    return float(table.latency_ms[index]), int(table.origin[index])


def test_lane_orders_equal_those_of_the_published_operation_lists() -> None:
    seen = 0
    embedded = {(record.system, record.backend) for record in list_profiles()}
    for name in ("op_level/op_lists.json", "op_level_breadth/op_lists.json"):
        for spec in load_golden(name)["specs"]:
            if (spec["system"], spec["backend"]) not in embedded:
                continue
            tables = load_tables(spec["system"], spec["backend"])
            for op in [*spec["context_ops"], *spec["generation_ops"]]:
                ((kind, fields),) = op.items()
                if kind in PHASES and "lane_order" in fields:
                    expected = tuple(fields["lane_order"])
                    assert tables.lane_order(PHASES[kind]) == expected
                    seen += 1
    assert seen >= 10


@pytest.mark.parametrize("system", ["b200_sxm", "h100_sxm", "h200_sxm"])
def test_lane_orders_and_choices_equal_the_measured_ones(system: str) -> None:
    seen = 0
    for case, expected in load_golden("systems/lane_orders.json").items():
        name, backend, slot, choice = case.split("|")
        if name == system and slot == "current":
            check_lanes(load_tables(system, backend), choice, expected)
            seen += 1
    assert seen >= 3


def check_lanes(tables: PerfTables, choice: str, expected: dict[str, Any]) -> None:
    chosen = None if choice == "None" else choice
    if "error" in expected:
        with pytest.raises(UnsupportedError, match="has no context attention"):
            tables.lane_order("context", chosen)
        return
    for kind, phase in PHASES.items():
        assert [list(tables.lane_order(phase, chosen))] == expected[kind]


def test_an_attention_backend_that_was_never_measured_is_refused() -> None:
    tables = load_tables("h200_sxm", "vllm")
    with pytest.raises(
        UnsupportedError, match="use one of flashinfer, triton, default"
    ):
        tables.lane_order("context", "fa9")


def test_own_rows_can_be_told_from_shared_ones() -> None:
    tables = load_tables("h200_sxm", "vllm")
    block = tables.gemm("fp8_block")
    plain = tables.gemm("bfloat16")
    assert block is not None and plain is not None
    assert {tables.sources[code] for code in np.unique(block.origin)} == {"vllm/0.25.0"}
    measured = plain.origin[~np.isnan(plain.latency_ms)]
    assert (measured == 0).sum() == 35742


def test_nothing_embedded_needs_a_caution() -> None:
    tables = load_tables("h200_sxm", "vllm")
    assert tables.gemm_cautions("fp8_block") == ()


@pytest.mark.needs_systems_tree
def test_a_tree_gives_the_embedded_tables_and_the_measured_lanes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    monkeypatch.setenv("AISIM_CACHE_DIR", str(tmp_path))
    root = os.environ["AISIM_SYSTEMS_TREE"]
    for record in list_profiles():
        tables = load_tables(record.system, record.backend, None, [root])
        assert tables.digest == record.digest
    for case, expected in load_golden("systems/lane_orders.json").items():
        system, backend, slot, choice = case.split("|")
        if expected.get("error") == "ValueError" or (system, backend) in (
            ("b60", "sglang"),
            ("b60", "trtllm"),
        ):
            with pytest.raises((ValueError, MissingPerfDataError)):
                load_tables(system, backend, slot, [root])
            continue
        check_lanes(load_tables(system, backend, slot, [root]), choice, expected)
