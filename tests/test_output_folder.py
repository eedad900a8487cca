"""A folder of results appears complete or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


KNOWN = ("rows.jsonl", "result.json")


def names(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


def broken() -> Iterator[str]:
    yield "half"
    raise KeyboardInterrupt


def test_a_new_folder_holds_every_file(tmp_path: Path) -> None:
    from aisim_jax._output_folder import publish

    folder = tmp_path / "deep" / "out"
    publish(folder, {"rows.jsonl": ["a\n", "b\n"], "result.json": ["{}"]}, KNOWN)
    assert names(folder) == sorted(KNOWN)
    assert (folder / "rows.jsonl").read_text() == "a\nb\n"
    assert names(folder.parent) == ["out"]


@pytest.mark.parametrize("existing", [(), ("result.json", "notes.txt")])
def test_an_interrupt_leaves_what_was_there(tmp_path: Path, existing) -> None:
    from aisim_jax._output_folder import publish

    folder = tmp_path / "out"
    for name in existing:
        folder.mkdir(exist_ok=True)
        (folder / name).write_text("old")
    with pytest.raises(KeyboardInterrupt):
        publish(folder, {"result.json": broken()}, KNOWN)
    assert names(tmp_path) == (["out"] if existing else [])
    assert all((folder / name).read_text() == "old" for name in existing)


def test_overwriting_removes_known_results_only(tmp_path: Path) -> None:
    from aisim_jax._output_folder import publish

    for name in (*KNOWN, "notes.txt"):
        (tmp_path / name).write_text("old")
    publish(tmp_path, {"result.json": ["new"]}, KNOWN)
    assert names(tmp_path) == ["notes.txt", "result.json"]
    assert (tmp_path / "result.json").read_text() == "new"


def test_a_folder_with_files_is_refused_without_overwrite(tmp_path: Path) -> None:
    from aisim_jax._errors import InvalidInputError
    from aisim_jax._output_folder import check_output_folder

    check_output_folder(tmp_path, overwrite=False)
    (tmp_path / "notes.txt").write_text("mine")
    check_output_folder(tmp_path, overwrite=True)
    with pytest.raises(InvalidInputError, match="--overwrite"):
        check_output_folder(tmp_path, overwrite=False)
    with pytest.raises(InvalidInputError, match="not a directory"):
        check_output_folder(tmp_path / "notes.txt", overwrite=True)
