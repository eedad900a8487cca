"""Which files serve one table of one backend version, and in what order."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from ._tree import SystemsTree, read_yaml


SHARING_TIERS = ("shared", "shared_fallback")


@dataclass(frozen=True, slots=True)
class Source:
    """One file. `kernels` restricts the rows that may be used (None: all)."""

    name: str  # "backend/version"
    path: Path
    kernels: frozenset[str] | None = None


def parse_version(name: str) -> Version | None:
    """PEP 440 version of a folder name, None when it is not one."""
    try:
        return Version(name)
    except InvalidVersion:
        return None


def resolve_sources(
    tree: SystemsTree, system: str, family: str, table: str, backend: str, version: str
) -> list[Source]:
    """Ordered files of `table`; an earlier file wins where two hold the same point.

    The version's own file, the donors that its reuse.yaml declares, older versions of
    the same backend (nearest first), then other backends for the kernels that the
    reuse manifest lets both use (backends alphabetical, newest version first).
    """
    folder = tree.data_folder(system) / family
    names = [version, *_declared_donors(folder / backend / version, table)]
    names += _older_versions(folder / backend, version)
    found: dict[str, Source] = {}
    for name in names:
        path = _table_file(folder / backend / name, table)
        if path is not None:
            label = f"{backend}/{name}"
            found.setdefault(label, Source(label, path))
    for other, kernels in sorted(_shared_kernels(tree, table, backend).items()):
        for name in _newest_first(folder / other):
            path = _table_file(folder / other / name, table)
            if path is not None:
                label = f"{other}/{name}"
                found[label] = Source(label, path, frozenset(kernels))
    return list(found.values())


def collective_sources(tree: SystemsTree, system: str) -> list[Source]:
    """The NCCL (or oneCCL) file that the system names; collectives never share."""
    misc = (tree.facts(f"{system}.yaml") or {}).get("misc", {})
    library = "oneccl" if "oneccl_version" in misc else "nccl"
    version = str(misc[f"{library}_version"])
    folder = tree.data_folder(system) / "comm" / library / version
    path = _table_file(folder, f"{library}_perf")
    return [] if path is None else [Source(f"{library}/{version}", path)]


def _table_file(folder: Path, table: str) -> Path | None:
    path = folder / f"{table}.parquet"
    if (folder / "INCOMPLETE.txt").exists() or not path.is_file():
        return None
    return path


def _declared_donors(folder: Path, table: str) -> list[str]:
    path = folder / "reuse.yaml"
    if not path.is_file():
        return []
    entries = (read_yaml(path) or {}).get("reuse") or []
    return [str(e["from_version"]) for e in entries if e["table"] == table]


def _older_versions(folder: Path, version: str) -> list[str]:
    own = parse_version(version)
    if own is None:
        return []
    return [
        name
        for name in _newest_first(folder)
        if (parsed := parse_version(name)) is not None and parsed < own
    ]


def _newest_first(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    parsed = [(parse_version(path.name), path.name) for path in folder.iterdir()]
    known = [(version, name) for version, name in parsed if version is not None]
    return [name for _, name in sorted(known, reverse=True)]


def _shared_kernels(
    tree: SystemsTree, table: str, backend: str
) -> dict[str, list[str]]:
    manifest = tree.facts("perf_data_reuse_manifest.yaml") or {}
    shared: dict[str, list[str]] = {}
    for group in manifest.get("groups") or ():
        frameworks = group["frameworks"]
        if (
            group["op_file"] == f"{table}.parquet"
            and group["tier"] in SHARING_TIERS
            and backend in frameworks
        ):
            for other in frameworks:
                if other != backend:
                    shared.setdefault(other, []).append(group["kernel_source"])
    return shared
