"""Table archives: what is written comes back, and damage is told in one sentence."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from systems_trees import gemm_rows, moe_row, write_rows, write_tree

from aisim_jax._errors import InvalidInputError
from aisim_jax.systems import import_tables, load_tables, verify_archive


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    tree = write_tree(tmp_path / "systems")
    draw = np.random.default_rng(0)
    points = [
        (int(m), int(n), 64, float(latency))
        for (m, n), latency in zip(
            [(m, n) for m in (1, 2, 4, 8) for n in range(1, 60)],
            draw.integers(1, 9, 236) / 3,
            strict=True,
        )
    ]
    write_rows(tree, "gemm/vllm/0.24.0", "gemm_perf", gemm_rows(*points))
    write_rows(tree, "moe/vllm/0.24.0", "moe_perf", [moe_row(1 / 3)])
    return import_tables(tree, "toy", "vllm", None, tmp_path / "out")


def load(archive: Path):
    return load_tables("toy", "vllm", None, [str(archive.parents[3])])


def test_values_come_back_bit_for_bit_in_both_encodings(archive: Path) -> None:
    gemm = load(archive).gemm("bfloat16")
    draw = np.random.default_rng(0)
    expected = (draw.integers(1, 9, 236) / 3).reshape(4, 59).T
    assert gemm is not None
    assert np.array_equal(gemm.latency_ms, expected)
    moe = load(archive).moe()["bfloat16", "power_law_1.2"]
    assert moe.latency_ms.item() == 1 / 3


def test_arrays_of_an_archive_are_read_only(archive: Path) -> None:
    gemm = load(archive).gemm("bfloat16")
    assert gemm is not None
    with pytest.raises(ValueError, match="read-only"):
        gemm.latency_ms[0, 0] = 1.0


def test_only_the_table_that_is_asked_for_is_read(archive: Path) -> None:
    rewritten = dict(members(archive))
    rewritten["moe/values.npy"] = b"not an array"
    rewrite(archive, rewritten)
    tables = load(archive)
    assert tables.gemm("bfloat16") is not None
    with pytest.raises(InvalidInputError, match=r"table moe is damaged; import the"):
        tables.moe()


def test_tables_that_an_archive_lacks_are_empty_or_none(archive: Path) -> None:
    tables = load(archive)
    assert tables.gemm("nvfp4") is None
    assert tables.allreduce() is None
    assert tables.context_attention() == {}
    assert tables.context_mla_module() == {}
    assert tables.bmm("bfloat16", True) is None
    assert tables.scale_matrix() is None


def test_a_truncated_archive_is_refused(archive: Path) -> None:
    archive.write_bytes(archive.read_bytes()[:-200])
    with pytest.raises(InvalidInputError, match=r"is damaged .*; import the data"):
        load(archive)


def test_a_flipped_byte_is_noticed(archive: Path) -> None:
    with zipfile.ZipFile(archive) as stored:
        start = stored.getinfo("gemm/bfloat16/codes.npy").header_offset + 60
    data = bytearray(archive.read_bytes())
    data[start] ^= 0xFF
    archive.write_bytes(bytes(data))
    with pytest.raises(InvalidInputError, match=r"damaged"):
        load(archive).gemm("bfloat16")


def test_a_foreign_archive_is_refused(archive: Path) -> None:
    np.savez(archive, weights=np.zeros(3))
    with pytest.raises(InvalidInputError, match="is not an aisim table archive"):
        load(archive)


def test_another_format_version_is_refused(archive: Path) -> None:
    stored = dict(members(archive))
    meta = json.loads(stored["meta.json"])
    stored["meta.json"] = json.dumps(meta | {"format_version": 99}).encode()
    rewrite(archive, stored)
    with pytest.raises(InvalidInputError, match="has table format 99, this version"):
        load(archive)


def test_a_changed_table_does_not_match_the_digest(archive: Path) -> None:
    assert verify_archive(archive)["digest"].startswith("sha256:")
    stored = dict(members(archive))
    stored["moe/origin.npy"] += b" "
    rewrite(archive, stored)
    with pytest.raises(InvalidInputError, match="does not match its digest"):
        verify_archive(archive)


def members(path: Path) -> list[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        return [(name, archive.read(name)) for name in archive.namelist()]


def rewrite(path: Path, stored: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in stored.items():
            archive.writestr(name, data)
