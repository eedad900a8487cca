"""Queryable versions of a reference tree: current, previous and the derived next."""

from __future__ import annotations

from pathlib import Path

from ..._errors import InvalidInputError
from ._sources import parse_version
from ._tree import SystemsTree


def tree_slots(tree: SystemsTree, system: str, backend: str) -> dict[str, str] | None:
    """Slots of system x backend, None when the tree has no data for them.

    `next` is the newest version with data above current over all systems that follow
    the defaults; systems with their own slots have no next and take no part in it.
    """
    if not declared_versions(tree, system, backend):
        return None
    document = tree.facts("query_versions.yaml")
    if document is None:
        raise InvalidInputError(
            f"{tree.root} has no query_versions.yaml; give a systems tree that has one"
        )
    overrides = document.get("overrides") or {}
    own = overrides.get(system)
    slots = (document["defaults"] if own is None else own).get(backend)
    if slots is None:
        return None
    found = {
        name: str(slots[name]) for name in ("current", "previous") if slots.get(name)
    }
    if own is None:
        newest = _newest_above(tree, backend, found["current"], set(overrides))
        if newest is not None:
            found["next"] = newest
    return found


def declared_versions(tree: SystemsTree, system: str, backend: str) -> set[str]:
    """Versions of `backend` that have a folder with files for `system`."""
    return {
        folder.name
        for folder in tree.data_folder(system).glob(f"*/{backend}/*")
        if _has_files(folder)
    }


def _newest_above(
    tree: SystemsTree, backend: str, current: str, apart: set[str]
) -> str | None:
    floor = parse_version(current)
    versions = {
        version
        for system in tree.systems()
        if system not in apart
        for version in declared_versions(tree, system, backend)
    }
    parsed = [(parse_version(name), name) for name in versions]
    above = [
        (version, name)
        for version, name in parsed
        if version is not None and floor is not None and version > floor
    ]
    return max(above)[1] if above else None


def _has_files(folder: Path) -> bool:
    if not folder.is_dir() or (folder / "INCOMPLETE.txt").exists():
        return False
    return any(
        path.suffix == ".parquet" or path.name == "reuse.yaml"
        for path in folder.iterdir()
    )
