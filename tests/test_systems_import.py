"""Conversion of a reference tree: which rows count, from which file, under which key."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from systems_trees import (
    attention_row,
    gemm_rows,
    moe_row,
    write_rows,
    write_tree,
    write_yaml,
)

from aisim_jax._errors import InvalidInputError, MissingPerfDataError
from aisim_jax.systems import AttentionKey, MlaKey, import_tables, load_tables


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return write_tree(tmp_path / "systems")


def imported(tree: Path, backend: str = "vllm", version: str | None = None):
    out = tree.parent / "out"
    import_tables(tree, "toy", backend, version, out)
    return load_tables("toy", backend, version, [str(out)])


def test_the_own_row_wins_and_older_versions_fill_nearest_first(tree: Path) -> None:
    write_rows(tree, "gemm/vllm/0.24.0", "gemm_perf", gemm_rows((1, 2, 3, 1.0)))
    older = gemm_rows((1, 2, 3, 9.0), (2, 2, 3, 2.0))
    write_rows(tree, "gemm/vllm/0.9.2", "gemm_perf", older)
    oldest = gemm_rows((2, 2, 3, 9.0), (4, 2, 3, 3.0))
    write_rows(tree, "gemm/vllm/0.9.0", "gemm_perf", oldest)
    newer = gemm_rows((8, 2, 3, 9.0))
    write_rows(tree, "gemm/vllm/0.25.0", "gemm_perf", newer)
    write_rows(tree, "gemm/vllm/dev-abc", "gemm_perf", newer)
    tables = imported(tree)
    gemm = tables.gemm("bfloat16")
    assert gemm is not None
    assert gemm.m.tolist() == [1, 2, 4]
    assert gemm.latency_ms.tolist() == [[1.0, 2.0, 3.0]]
    assert [tables.sources[code] for code in gemm.origin[0]] == [
        "vllm/0.24.0",
        "vllm/0.9.2",
        "vllm/0.9.0",
    ]


def test_a_declared_donor_may_be_newer_and_goes_before_older_versions(
    tree: Path,
) -> None:
    write_rows(tree, "gemm/vllm/0.24.0", "gemm_perf", gemm_rows((1, 2, 3, 1.0)))
    write_rows(tree, "gemm/vllm/0.25.0", "gemm_perf", gemm_rows((2, 2, 3, 5.0)))
    write_rows(tree, "gemm/vllm/0.20.0", "gemm_perf", gemm_rows((2, 2, 3, 9.0)))
    reuse = {"reuse": [{"table": "gemm_perf", "from_version": "0.25.0"}]}
    write_yaml(tree / "data/toy/gemm/vllm/0.24.0/reuse.yaml", reuse)
    gemm = imported(tree).gemm("bfloat16")
    assert gemm is not None
    assert gemm.latency_ms.tolist() == [[1.0, 5.0]]


def test_an_incomplete_folder_is_skipped(tree: Path) -> None:
    write_rows(tree, "gemm/vllm/0.24.0", "gemm_perf", gemm_rows((1, 2, 3, 1.0)))
    write_rows(tree, "gemm/vllm/0.20.0", "gemm_perf", gemm_rows((2, 2, 3, 9.0)))
    (tree / "data/toy/gemm/vllm/0.20.0/INCOMPLETE.txt").write_text("")
    gemm = imported(tree).gemm("bfloat16")
    assert gemm is not None
    assert gemm.m.tolist() == [1]


def test_other_backends_lend_only_the_kernels_that_the_manifest_shares(
    tree: Path,
) -> None:
    group = {"op_file": "gemm_perf.parquet", "kernel_source": "cublas"}
    both = ["sglang", "vllm"]
    manifest = {
        "groups": [
            {**group, "tier": "shared", "frameworks": both},
            {
                **group,
                "kernel_source": "inert",
                "tier": "absence_load_bearing",
                "frameworks": both,
            },
        ]
    }
    write_yaml(tree / "perf_data_reuse_manifest.yaml", manifest)
    write_rows(tree, "gemm/vllm/0.24.0", "gemm_perf", gemm_rows((1, 2, 3, 1.0)))
    lent = gemm_rows((2, 2, 3, 2.0), (4, 2, 3, 4.0), (8, 2, 3, 8.0))
    lent[1]["kernel_source"] = "inert"
    lent[2]["kernel_source"] = "own"
    write_rows(tree, "gemm/sglang/0.5.14", "gemm_perf", lent)
    tables = imported(tree)
    gemm = tables.gemm("bfloat16")
    assert gemm is not None
    assert gemm.m.tolist() == [1, 2]
    assert tables.sources == ("vllm/0.24.0", "sglang/0.5.14")


def test_gemm_sites_come_in_the_order_of_walking_m_then_n_then_k(tree: Path) -> None:
    rows = gemm_rows(
        (8, 20, 30, 1.0),
        (4, 10, 40, 2.0),
        (8, 10, 50, 3.0),
        (8, 20, 20, 4.0),
        (4, 10, 30, 5.0),
    )
    rows += gemm_rows((1, 1, 1, 1.0), quant="awq")
    write_rows(tree, "gemm/vllm/0.24.0", "gemm_perf", rows)
    tables = imported(tree)
    gemm = tables.gemm("bfloat16")
    assert tables.gemm_modes() == ("bfloat16",)
    assert gemm is not None
    sites = list(zip(gemm.n.tolist(), gemm.k.tolist(), strict=True))
    assert sites == [(20, 30), (20, 20), (10, 50), (10, 40), (10, 30)]
    assert np.isnan(gemm.latency_ms[0, 0])


def test_attention_keeps_lanes_apart_and_plain_heads_under_zero(tree: Path) -> None:
    rows = [
        attention_row("first", 1.0),
        attention_row("second", 2.0),
        attention_row("first", 3.0, num_key_value_heads=8),
        attention_row("first", 9.0),
    ]
    for row in rows:
        del row["window_size"]
    place = "attention/vllm/0.24.0"
    write_rows(tree, place, "context_attention_perf", rows)
    steps = [attention_row("first", 4.0, isl=1, step=127)]
    write_rows(tree, place, "generation_attention_perf", steps)
    tables = imported(tree)
    lanes = tables.context_attention()
    grouped = AttentionKey("bfloat16", "bfloat16", 2, 128, 0)
    plain = AttentionKey("bfloat16", "bfloat16", 0, 128, 0)
    assert list(lanes) == ["first", "second"]
    assert lanes["first"][grouped].latency_ms.item() == 1.0
    assert lanes["second"][grouped].latency_ms.item() == 2.0
    assert lanes["first"][plain].latency_ms.item() == 3.0
    decode = tables.generation_attention()["first"]
    grid = decode[AttentionKey("", "bfloat16", 2, 128, 0)]
    assert [axis.tolist() for axis in grid.axes] == [[8], [1], [128]]


def test_moe_renames_kernels_splits_low_latency_and_drops_ineligible_rows(
    tree: Path,
) -> None:
    rows = [
        moe_row(1.0, default_eligible=True),
        moe_row(
            2.0,
            moe_dtype="w4a8_mxfp4_mxfp8",
            kernel_source="sglang_mxfp4_flashinfer_trtllm_moe",
            default_eligible=True,
        ),
        moe_row(3.0, kernel_source="moe_torch_flow_min_latency", default_eligible=True),
        moe_row(4.0, num_tokens=32, default_eligible=False),
    ]
    write_rows(tree, "moe/vllm/0.24.0", "moe_perf", rows)
    tables = imported(tree)
    moe = tables.moe()
    assert set(moe) == {
        ("bfloat16", "power_law_1.2"),
        ("w4a8_mxfp4_mxfp8_trtllm", "power_law_1.2"),
    }
    assert moe["bfloat16", "power_law_1.2"].tokens.tolist() == [16]
    assert moe["bfloat16", "power_law_1.2"].shapes.tolist() == [[2, 8, 64, 128, 1, 1]]
    low = tables.moe_low_latency()["bfloat16", "power_law_1.2"]
    assert low.latency_ms.tolist() == [[3.0]]


def test_eager_all_reduce_rows_are_left_out_except_on_intel(tree: Path) -> None:
    row = {
        "device": "NVIDIA",
        "kernel_source": "vLLM_custom_eager",
        "backend": "vllm_eager",
        "num_gpus": 2,
        "message_size": 128,
        "latency": 1.0,
    }
    graph = row | {
        "kernel_source": "vLLM_custom_graph",
        "backend": "vllm_graph",
        "latency": 2.0,
    }
    place = "comm/vllm/0.24.0"
    write_rows(tree, place, "custom_allreduce_perf", [row, graph])
    allreduce = imported(tree).allreduce()
    assert allreduce is not None
    assert allreduce.latency_ms.tolist() == [[2.0]]
    intel = [r | {"device": "Intel(R) Arc"} for r in (row, graph)]
    write_rows(tree, place, "custom_allreduce_perf", intel)
    allreduce = imported(tree).allreduce()
    assert allreduce is not None
    assert allreduce.latency_ms.tolist() == [[1.0]]


def test_nccl_comes_from_the_systems_version_alone(tree: Path) -> None:
    write_rows(tree, "gemm/vllm/0.24.0", "gemm_perf", gemm_rows((1, 2, 3, 1.0)))
    row = {
        "op_name": "all_gather",
        "nccl_dtype": "half",
        "num_gpus": 4,
        "message_size": 256,
        "latency": 1.0,
    }
    write_rows(tree, "comm/nccl/2.26.2", "nccl_perf", [row])
    write_rows(tree, "comm/nccl/2.20", "nccl_perf", [row | {"num_gpus": 8}])
    tables = imported(tree)
    gathered = tables.nccl("all_gather", "half")
    assert gathered is not None
    assert gathered.gpus.tolist() == [4]
    assert tables.nccl("alltoall", "half") is None
    assert tables.table_sources("nccl") == ("nccl/2.26.2",)


def test_mla_modules_are_keyed_by_the_heads_of_their_model(tree: Path) -> None:
    row = {
        "model": "deepseek-ai/DeepSeek-R1",
        "mla_dtype": "bfloat16",
        "kv_cache_dtype": "fp8",
        "gemm_type": "fp8_block",
        "batch_size": 1,
        "isl": 64,
        "step": 0,
        "latency": 1.0,
    }
    rows = [
        row | {"num_heads": 16, "tp_size": 8},
        row | {"num_heads": 32, "tp_size": 4},
    ]
    write_rows(tree, "mla/vllm/0.24.0", "mla_context_module_perf", rows)
    modules = imported(tree).context_mla_module()
    assert list(modules) == [MlaKey("bfloat16", "fp8", "fp8_block", 128)]
    (grid,) = modules.values()
    assert grid.axes[0].tolist() == [16, 32]


def test_lanes_are_ordered_by_pin_density_generic_names_and_sharing(
    tree: Path,
) -> None:
    pins = {
        "sglang": {"0.5.10": {90: "fa3"}, "0.6.0": {90: "late"}},
        "architectures": {"Odd": {"sglang": {"0.5.12": {90: "flashinfer"}}}},
    }
    write_yaml(tree / "attention_lane_defaults.yaml", pins)
    own = [attention_row("sparse", 1.0, isl=isl) for isl in (64, 128, 256)]
    own += [attention_row("dense", 1.0, head_dim=dim) for dim in (64, 128)]
    older = [attention_row("gone", 1.0), attention_row("triton", 1.0)]
    table = "context_attention_perf"
    write_rows(tree, "attention/sglang/0.5.14", table, own)
    write_rows(tree, "attention/sglang/0.5.9", table, older)
    tables = imported(tree, "sglang")
    order = ("dense", "sparse", "triton", "fa3", "fla", "flashinfer", "trtllm_mha")
    pinned = tuple(x for x in order if x != "fa3")
    assert tables.lane_order("context") == ("fa3", *pinned, "default", "gone")
    assert tables.lane_order("context", "triton")[:3] == ("triton", "fa3", "dense")
    assert tables.lane_order("context", None, "Odd")[0] == "flashinfer"
    assert list(tables.context_attention()) == ["sparse", "dense", "gone", "triton"]


def test_a_backend_without_a_default_uses_table_order(tree: Path) -> None:
    rows = [attention_row("torch_flow", 1.0)]
    write_rows(tree, "attention/trtllm/1.3.0rc20", "context_attention_perf", rows)
    assert imported(tree, "trtllm").lane_order("context") == ("default",)


def test_importing_twice_writes_the_same_bytes(tree: Path, tmp_path: Path) -> None:
    write_rows(tree, "gemm/vllm/0.24.0", "gemm_perf", gemm_rows((1, 2, 3, 1.0)))
    first = import_tables(tree, "toy", "vllm", None, tmp_path / "a")
    second = import_tables(tree, "toy", "vllm", None, tmp_path / "b")
    assert first.read_bytes() == second.read_bytes()
    assert not list(tmp_path.rglob("*.part"))


def test_a_wheel_and_the_folder_above_it_give_the_same_tables(
    tree: Path, tmp_path: Path
) -> None:
    write_rows(tree, "gemm/vllm/0.24.0", "gemm_perf", gemm_rows((1, 2, 3, 1.0)))
    wheel = tmp_path / "toy_data-1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in tree.rglob("*"):
            if path.is_file():
                archive.write(path, f"toy_data/systems/{path.relative_to(tree)}")
    import_tables(wheel, "toy", "vllm", None, tmp_path / "a")
    import_tables(tree.parent, "toy", "vllm", None, tmp_path / "b")
    packed = load_tables("toy", "vllm", None, [str(tmp_path / "a")])
    plain = load_tables("toy", "vllm", None, [str(tmp_path / "b")])
    assert packed.digest == plain.digest
    assert packed.meta["origin"] == "toy-data 1.2"
    assert packed.spec.origin == "toy-data 1.2"


def test_a_newer_version_without_own_data_is_filled_from_older_ones(
    tree: Path,
) -> None:
    write_rows(tree, "gemm/vllm/0.24.0", "gemm_perf", gemm_rows((1, 2, 3, 1.0)))
    write_rows(tree, "moe/vllm/0.31.0", "moe_perf", [moe_row(1.0)])
    tables = imported(tree, "vllm", "next")
    gemm = tables.gemm("bfloat16")
    assert tables.version == "0.31.0"
    assert gemm is not None
    assert tables.sources[int(gemm.origin[0, 0])] == "vllm/0.24.0"


def test_bad_sources_are_refused_in_one_sentence(tree: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(InvalidInputError, match="neither a folder, a wheel file nor"):
        import_tables("no-such-package-anywhere", "toy", "vllm", None, out)
    plain = tmp_path / "notes.whl"
    plain.write_text("hello")
    with pytest.raises(InvalidInputError, match="is not a wheel"):
        import_tables(plain, "toy", "vllm", None, out)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InvalidInputError, match="has no systems folder"):
        import_tables(empty, "toy", "vllm", None, out)
    with pytest.raises(InvalidInputError, match="'nova' is not in"):
        import_tables(tree, "nova", "vllm", None, out)
    with pytest.raises(MissingPerfDataError, match="has no vllm data for toy"):
        import_tables(tree, "toy", "vllm", None, out)
    write_rows(tree, "moe/vllm/0.20.0", "moe_perf", [moe_row(1.0)])
    with pytest.raises(
        MissingPerfDataError, match=r"no vllm 0\.1 data for toy; it has"
    ):
        import_tables(tree, "toy", "vllm", "0.1", out)
    folder = tree / "data/toy/gemm/vllm/0.24.0"
    folder.mkdir(parents=True)
    (folder / "gemm_perf.parquet").write_text("version https://git-lfs")
    with pytest.raises(InvalidInputError, match="not a readable parquet file"):
        import_tables(tree, "toy", "vllm", None, out)


def test_eager_gemm_rows_carry_a_caution_and_borrowed_ones_do_not(tree: Path) -> None:
    rows = gemm_rows((1, 2, 3, 1.0), quant="fp8_block")
    write_rows(tree, "gemm/vllm/0.23.0", "gemm_perf", rows)
    write_rows(tree, "gemm/vllm/0.24.0", "gemm_perf", gemm_rows((1, 2, 3, 1.0)))
    assert imported(tree).gemm_cautions("fp8_block") == ()
    write_rows(tree, "gemm/vllm/0.24.0", "gemm_perf", rows)
    (caution,) = imported(tree).gemm_cautions("fp8_block")
    assert "without graph capture" in caution


@pytest.mark.needs_core012
def test_an_installed_data_package_can_be_imported(tmp_path: Path) -> None:
    import_tables("aiconfigurator-core", "h200_sxm", "vllm", None, tmp_path)
    tables = load_tables("h200_sxm", "vllm", None, [str(tmp_path)])
    assert tables.meta["origin"] == "aiconfigurator-core 0.12.0"
    assert tables.lane_order("context")[0] == "vllm_flash_attn_fa3"
    assert tables.gemm_cautions("fp8_block")
