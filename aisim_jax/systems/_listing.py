"""What can be priced, from which data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ._archive import read_meta
from ._roots import data_roots


@dataclass(frozen=True, slots=True)
class ProfileRecord:
    """One table archive."""

    system: str
    backend: str
    version: str
    tables: tuple[str, ...]
    rows: int
    origin: str
    digest: str
    size_bytes: int
    root: str


def list_profiles(systems_paths: Sequence[str] = ()) -> list[ProfileRecord]:
    """Archives of all roots, by root, system, backend, version."""
    records = []
    for root in data_roots(systems_paths):
        for path in root.archives():
            meta = read_meta(path)
            tables = meta["tables"]
            records.append(
                ProfileRecord(
                    system=meta["system"],
                    backend=meta["backend"],
                    version=meta["version"],
                    tables=tuple(tables),
                    rows=sum(table["rows"] for table in tables.values()),
                    origin=meta["origin"],
                    digest=meta["digest"],
                    size_bytes=path.stat().st_size,
                    root=root.label,
                )
            )
    return records
