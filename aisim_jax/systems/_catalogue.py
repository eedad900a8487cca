"""Specifications, queryable versions and tables by name, over the data roots."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from .._backends import BACKENDS
from .._errors import (
    InvalidInputError,
    MissingPerfDataError,
    UnlistedVersionError,
)
from ._perf_tables import PerfTables
from ._roots import Root, data_roots
from ._spec import SystemSpec


def system_names(systems_paths: Sequence[str] = ()) -> list[str]:
    """Names of all systems that the roots describe."""
    roots = data_roots(systems_paths)
    return sorted({name for root in roots for name in root.systems()})


def load_system(name: str, systems_paths: Sequence[str] = ()) -> SystemSpec:
    """Specification of a system; the first root that describes it wins.

    >>> load_system("h200_sxm").gpus_per_node
    8
    """
    for root in data_roots(systems_paths):
        spec = root.spec(name)
        if spec is not None:
            return spec
    known = ", ".join(system_names(systems_paths))
    raise InvalidInputError(f"system {name!r} is unknown; use one of {known}")


def resolve_version(
    system: str,
    backend: str,
    request: str | None = None,
    systems_paths: Sequence[str] = (),
) -> str:
    """Data version for a request: None or "current", "previous", "next", or literal.

    A literal must equal a slot, or be a version that was imported into a root.

    >>> resolve_version("h200_sxm", "vllm")
    '0.24.0'
    """
    load_system(system, systems_paths)
    if backend not in BACKENDS:
        names = ", ".join(BACKENDS)
        raise InvalidInputError(f"backend {backend!r} is unknown; use one of {names}")
    roots = data_roots(systems_paths)
    if request and any(root.has_version(system, backend, request) for root in roots):
        return request
    slots = next(filter(None, (root.slots(system, backend) for root in roots)), None)
    if slots is None:
        raise MissingPerfDataError(
            f"{system} has no measured data for {backend} in {_labels(roots)}; "
            "choose another backend or import data with `aisim profiles import`"
        )
    wanted = request or "current"
    if wanted in slots:
        return slots[wanted]
    if wanted in slots.values():
        return wanted
    listed = ", ".join(f"{version} ({slot})" for slot, version in slots.items())
    raise UnlistedVersionError(
        f"{backend} version {wanted!r} cannot be queried on {system}; use one of {listed}"
    )


def load_tables(
    system: str,
    backend: str,
    version: str | None = None,
    systems_paths: Sequence[str] = (),
) -> PerfTables:
    """Measured tables of system x backend x version; the first root that has them wins.

    >>> load_tables("h200_sxm", "vllm").gemm_modes()
    ('bfloat16', 'fp8', 'fp8_block')
    """
    literal = resolve_version(system, backend, version, systems_paths)
    roots = data_roots(systems_paths)
    for root in roots:
        path = root.archive(system, backend, literal)
        if path is not None:
            changed_ns = path.stat().st_mtime_ns
            spec = load_system(system, systems_paths)
            return _open_tables(
                path, changed_ns, spec.name, tuple(systems_paths), root.label
            )
    raise MissingPerfDataError(
        f"no measured tables for {system}, {backend} {literal} in {_labels(roots)}; "
        f"nearest: {_nearest(roots, system, backend)}; import them with `aisim "
        f"profiles import SOURCE --system {system} --backend {backend}`"
    )


@lru_cache(maxsize=32)
def _open_tables(
    path: Path, changed_ns: int, system: str, systems_paths: tuple[str, ...], label: str
) -> PerfTables:
    return PerfTables(path, load_system(system, systems_paths), label)


def _nearest(roots: Sequence[Root], system: str, backend: str) -> str:
    """The available data that is most like a request, in words."""
    have = [path.parts[-3:] for root in roots for path in root.archives()]
    for same in ((system, backend), (system, None), (None, backend), (None, None)):
        found = [
            f"{name}, {engine} {archive.removesuffix('.npz')}"
            for name, engine, archive in have
            if same[0] in (None, name) and same[1] in (None, engine)
        ]
        if found:
            return "; ".join(found[:3])
    return "nothing"


def _labels(roots: Sequence[Root]) -> str:
    return ", ".join(root.label for root in roots)
