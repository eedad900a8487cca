"""A folder of result files that appears complete or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from ._atomic import check_writable
from ._errors import InvalidInputError


def check_output_folder(folder: Path, *, overwrite: bool) -> None:
    """Refuse a place that holds files, or cannot, before any work is done for it."""
    check_writable(folder.absolute() / "result")
    if folder.is_dir() and any(folder.iterdir()) and not overwrite:
        raise InvalidInputError(
            f"--output-dir {str(folder)!r} is not empty; give --overwrite to replace "
            "its result files, or name another folder"
        )


def publish(
    folder: Path, files: Mapping[str, Iterable[str]], known: Collection[str]
) -> list[Path]:
    """Write `files`, name to pieces of text, so that a kill leaves no half of them.

    Everything is written beside the folder first. A new or empty folder is renamed into
    place as a whole; in any other, the `known` result files of an earlier run go first,
    the last of `files` first of all, and the new ones follow with the last of `files`
    last: while it is there, the result is complete. Other files stay.
    """
    folder = folder.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    stage = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        for name, pieces in files.items():
            (stage / name).parent.mkdir(parents=True, exist_ok=True)
            with open(stage / name, "w", encoding="utf-8") as stream:
                stream.writelines(pieces)
        if not folder.exists() or not any(folder.iterdir()):
            mask = os.umask(0)
            os.umask(mask)
            stage.chmod(0o777 & ~mask)
            stage.replace(folder)
        else:
            main = list(files)[-1]
            for name in sorted(known, key=lambda name: name != main):
                (folder / name).unlink(missing_ok=True)
            for name in files:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (stage / name).replace(folder / name)
            shutil.rmtree(stage)
    except BaseException:
        shutil.rmtree(stage, ignore_errors=True)
        raise
    return [folder / name for name in files]
