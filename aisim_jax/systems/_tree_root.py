"""An unpacked reference systems tree as a data root: imported when first needed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from ._archive import FORMAT_VERSION
from ._cache_folder import cache_folder
from ._spec import SystemSpec
from .importing import (
    FAMILY_FOLDERS,
    SystemsTree,
    declared_versions,
    import_from_tree,
    tree_slots,
    tree_spec,
)


@dataclass(frozen=True, slots=True)
class TreeRoot:
    """Answers the same questions as a ProfileFolder, from a SystemsTree."""

    tree: SystemsTree
    label: str

    def systems(self) -> list[str]:
        """Names of the described systems."""
        return self.tree.systems()

    def spec(self, system: str) -> SystemSpec | None:
        """Specification of `system`, None when it is not described here."""
        if not (self.tree.root / f"{system}.yaml").is_file():
            return None
        return replace(tree_spec(self.tree, system), origin=self.tree.origin)

    def slots(self, system: str, backend: str) -> dict[str, str] | None:
        """Queryable versions: current and, where they exist, previous and next."""
        if system not in self.systems():
            return None
        return tree_slots(self.tree, system, backend)

    def has_version(self, system: str, backend: str, version: str) -> bool:
        """A tree answers its slots only."""
        return False

    def archive(self, system: str, backend: str, version: str) -> Path | None:
        """Path of the imported archive in the user's cache folder."""
        if system not in self.systems():
            return None
        if not declared_versions(self.tree, system, backend):
            return None
        folder = cache_folder() / "tables" / self._fingerprint(system)
        path = folder / "tables" / system / backend / f"{version}.npz"
        if not path.is_file():
            import_from_tree(self.tree, system, backend, version, folder)
        return path

    def archives(self) -> list[Path]:
        """Nothing is imported before it is asked for."""
        return []

    def _fingerprint(self, system: str) -> str:
        """Names, sizes and modification times of the files that an import reads."""
        digest = hashlib.sha256(f"{FORMAT_VERSION} {self.tree.root}".encode())
        data = self.tree.data_folder(system)
        files = sorted(self.tree.root.glob("*.yaml"))
        for family in FAMILY_FOLDERS:
            files += sorted(p for p in (data / family).rglob("*") if p.is_file())
        for path in files:
            facts = path.stat()
            digest.update(f"{path}\0{facts.st_size}\0{facts.st_mtime_ns}\0".encode())
        return digest.hexdigest()[:16]
