"""A folder of profiles: systems.json, query_versions.json and tables/*/*/*.npz."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from .._atomic import write_file
from .._errors import InvalidInputError
from ._archive import REMEDY
from ._spec import SystemSpec


SYSTEMS = "systems.json"
VERSIONS = "query_versions.json"


@dataclass(frozen=True, slots=True)
class ProfileFolder:
    """What `import_tables` writes, and the layout of the packaged profiles."""

    root: Path
    label: str

    def systems(self) -> list[str]:
        """Names of the described systems."""
        return list(self._facts(SYSTEMS)["systems"])

    def spec(self, system: str) -> SystemSpec | None:
        """Specification of `system`, None when it is not described here."""
        facts = self._facts(SYSTEMS)["systems"].get(system)
        return None if facts is None else _spec_from_json(system, facts)

    def slots(self, system: str, backend: str) -> dict[str, str] | None:
        """Queryable versions: current and, where they exist, previous and next."""
        return self._facts(VERSIONS).get(system, {}).get(backend)

    def has_version(self, system: str, backend: str, version: str) -> bool:
        """Whether tables of this very version are here."""
        return self._path(system, backend, version).is_file()

    def archive(self, system: str, backend: str, version: str) -> Path | None:
        """Path of the table archive, None when there is none."""
        path = self._path(system, backend, version)
        return path if path.is_file() else None

    def archives(self) -> list[Path]:
        """All table archives, by system, backend, version."""
        return sorted((self.root / "tables").glob("*/*/*.npz"))

    def _path(self, system: str, backend: str, version: str) -> Path:
        return self.root / "tables" / system / backend / f"{version}.npz"

    def _facts(self, name: str) -> dict[str, Any]:
        path = self.root / name
        return read_facts(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=32)
def read_facts(path: Path, changed_ns: int) -> dict[str, Any]:
    """Parse a JSON file of facts; `changed_ns` is part of the cache key."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise InvalidInputError(f"{path} is not JSON ({error}); {REMEDY}") from error


def merge_facts(
    root: Path,
    spec: SystemSpec,
    origin: str,
    slots: Mapping[str, Mapping[str, str]],
) -> None:
    """Add or replace one system's specification and version slots in `root`."""
    systems = _existing(root / SYSTEMS) or {"systems": {}}
    facts = {
        name: value
        for name, value in asdict(spec).items()
        if name != "name" and value is not None
    }
    systems["systems"][spec.name] = {**facts, "origin": origin}
    systems["systems"] = dict(sorted(systems["systems"].items()))
    _write(root / SYSTEMS, systems)
    versions = _existing(root / VERSIONS)
    versions.setdefault(spec.name, {}).update(
        {backend: dict(by_slot) for backend, by_slot in slots.items()}
    )
    _write(root / VERSIONS, dict(sorted(versions.items())))


def _existing(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _write(path: Path, facts: Mapping[str, Any]) -> None:
    write_file(path, json.dumps(facts, indent=1) + "\n")


def _spec_from_json(name: str, facts: Mapping[str, Any]) -> SystemSpec:
    fields = dict(facts)
    memory = fields.pop("nccl_mem_bytes")
    return SystemSpec(
        name=name,
        nccl_mem_bytes={int(gpus): size for gpus, size in memory.items()},
        **fields,
    )
