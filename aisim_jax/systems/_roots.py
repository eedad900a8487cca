"""Ordered data roots: where specifications and tables are looked for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from .._errors import InvalidInputError
from ._profile_folder import SYSTEMS, ProfileFolder
from ._tree_root import TreeRoot
from .importing import find_systems_folder, folder_tree


DEFAULT = "default"
Root = ProfileFolder | TreeRoot


def data_roots(systems_paths: Sequence[str] = ()) -> tuple[Root, ...]:
    """Open the roots in order; the word "default" is the packaged data.

    No roots means the packaged data alone. `~` and relative paths are made absolute,
    duplicates are dropped, a folder that does not exist is an error.
    """
    places: dict[str, None] = {}
    for entry in systems_paths or (DEFAULT,):
        text = str(entry).strip()
        if not text:
            raise InvalidInputError("systems_paths: a blank entry; give a folder")
        if text.lower() == DEFAULT:
            places[DEFAULT] = None
        else:
            places[str(Path(text).expanduser().resolve())] = None
    return tuple(_open_root(place) for place in places)


@lru_cache(maxsize=32)
def _open_root(place: str) -> Root:
    if place == DEFAULT:
        return ProfileFolder(packaged_profiles(), DEFAULT)
    folder = Path(place)
    if not folder.is_dir():
        raise InvalidInputError(
            f"systems_paths: {place} is not a folder; give an existing one"
        )
    if (folder / SYSTEMS).is_file():
        return ProfileFolder(folder, place)
    if find_systems_folder(folder) is None:
        raise InvalidInputError(
            f"systems_paths: {place} holds neither imported profiles ({SYSTEMS}) nor a "
            "systems tree; fill it with `aisim profiles import`"
        )
    return TreeRoot(folder_tree(folder), place)


def packaged_profiles() -> Path:
    """Folder of the embedded profiles."""
    return Path(__file__).resolve().parent.parent / "profiles"
