"""Convert the measured tables of a reference tree to one compact archive."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..._backends import BACKENDS
from ..._errors import InvalidInputError, MissingPerfDataError
from .._archive import write_archive
from .._blocks import Block
from .._lanes import lane_census
from .._profile_folder import merge_facts
from .._spec import SystemSpec
from ._families import FAMILIES, NCCL, Family
from ._lane_defaults import lane_defaults
from ._rows import read_rows
from ._slots import declared_versions, tree_slots
from ._sources import Source, collective_sources, resolve_sources
from ._spec_facts import tree_spec
from ._tree import SystemsTree, open_tree


def import_tables(
    source: str | Path,
    system: str,
    backend: str,
    version: str | None = None,
    out_root: str | Path = "profiles",
) -> Path:
    """Write the archive of system x backend x version under `out_root`; return its path.

    `source` is an unpacked systems folder (or one that contains it), a wheel file or
    the name of an installed package. `version` is a slot, a literal version that has
    data, or None for the current one. Needs pyarrow (the extra `import`).
    """
    require_pyarrow()
    with open_tree(source) as tree:
        return import_from_tree(tree, system, backend, version, Path(out_root))


def require_pyarrow() -> None:
    """Raise InvalidInputError when pyarrow is not installed."""
    try:
        import pyarrow  # noqa: F401
    except ModuleNotFoundError as error:
        raise InvalidInputError(
            "reading parquet tables needs pyarrow; install aisim-jax[import]"
        ) from error


def import_from_tree(
    tree: SystemsTree, system: str, backend: str, version: str | None, out_root: Path
) -> Path:
    """`import_tables` on an opened tree."""
    require_pyarrow()
    literal = _literal_version(tree, system, backend, version)
    spec = tree_spec(tree, system)
    sources = [f"{backend}/{literal}"]
    blocks: dict[str, list[Block]] = {}
    facts: dict[str, dict[str, Any]] = {}
    for family in FAMILIES:
        files = resolve_sources(
            tree, system, family.folder, family.table, backend, literal
        )
        _read_family(family, _coded(files, sources), blocks, facts)
    collectives = collective_sources(tree, system)
    _read_family(NCCL, [(0, file) for file in collectives], blocks, facts)
    if not blocks:
        raise MissingPerfDataError(
            f"{tree.root} has no tables for {system}, {backend} {literal}"
        )
    path = out_root / "tables" / system / backend / f"{literal}.npz"
    write_archive(
        path, _meta(tree, spec, backend, literal, sources, blocks, facts), blocks
    )
    merge_facts(out_root, spec, tree.origin, _all_slots(tree, system))
    return path


def import_facts(source: str | Path, out_root: str | Path) -> list[str]:
    """Write specifications and version slots of every system of `source`."""
    with open_tree(source) as tree:
        for system in tree.systems():
            spec = tree_spec(tree, system)
            merge_facts(Path(out_root), spec, tree.origin, _all_slots(tree, system))
        return tree.systems()


def _literal_version(
    tree: SystemsTree, system: str, backend: str, version: str | None
) -> str:
    declared = declared_versions(tree, system, backend)
    if not declared:
        raise MissingPerfDataError(
            f"{tree.root} has no {backend} data for {system}; choose one of "
            f"{', '.join(BACKENDS)} that it has"
        )
    slots = tree_slots(tree, system, backend) or {}
    wanted = version or "current"
    literal = slots.get(wanted, wanted)
    if literal not in {*declared, *slots.values()}:
        known = ", ".join(sorted(declared))
        raise MissingPerfDataError(
            f"{tree.root} has no {backend} {literal} data for {system}; "
            f"it has versions {known}"
        )
    return literal


def _all_slots(tree: SystemsTree, system: str) -> dict[str, dict[str, str]]:
    found = {backend: tree_slots(tree, system, backend) for backend in BACKENDS}
    return {backend: slots for backend, slots in found.items() if slots is not None}


def _coded(files: Sequence[Source], names: list[str]) -> list[tuple[int, Source]]:
    """Give each file the code of its name, adding new names to `names`."""
    for file in files:
        if file.name not in names:
            names.append(file.name)
    return [(names.index(file.name), file) for file in files]


def _read_family(
    family: Family,
    files: Sequence[tuple[int, Source]],
    blocks: dict[str, list[Block]],
    facts: dict[str, dict[str, Any]],
) -> None:
    if not files:
        return
    rows = read_rows(files, family.numbers, family.texts)
    for name, found in family.build(rows).items():
        if not found:
            continue
        blocks[name] = found
        counts = [int(np.count_nonzero(~np.isnan(b.latency_ms))) for b in found]
        facts[name] = {
            "sources": [file.name for _, file in files],
            "rows": sum(counts),
        }


def _meta(
    tree: SystemsTree,
    spec: SystemSpec,
    backend: str,
    version: str,
    sources: Sequence[str],
    blocks: dict[str, list[Block]],
    facts: dict[str, dict[str, Any]],
) -> dict[str, Any]:
    lanes = lane_defaults(tree, backend, version, spec.sm_version)
    return {
        "system": spec.name,
        "backend": backend,
        "version": version,
        "origin": tree.origin,
        "sources": list(sources),
        "tables": facts,
        "gemm_modes": [n.split("/")[1] for n in blocks if n.startswith("gemm/")],
        "lanes": {
            **lanes,
            "context": lane_census(blocks.get("context_attention", [])),
            "generation": lane_census(blocks.get("generation_attention", [])),
        },
    }
