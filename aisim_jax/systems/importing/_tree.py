"""Where reference data comes from: an installed package, a wheel or a folder."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from ..._errors import InvalidInputError


YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class SystemsTree:
    """An unpacked systems folder: `<system>.yaml` files beside `data/`."""

    root: Path
    origin: str  # distribution and version, else the folder's name

    def facts(self, name: str) -> Any:
        """Parsed content of the side file `name` (YAML), None when absent."""
        path = self.root / name
        return read_yaml(path) if path.is_file() else None

    def systems(self) -> list[str]:
        """Names of the systems that the tree describes."""
        return sorted(
            path.stem
            for path in self.root.glob("*.yaml")
            if "gpu" in (read_yaml(path) or {})
        )

    def data_folder(self, system: str) -> Path:
        """Folder that holds the tables of `system`."""
        facts = self.facts(f"{system}.yaml")
        if not facts or "gpu" not in facts:
            known = ", ".join(self.systems())
            raise InvalidInputError(
                f"system {system!r} is not in {self.root}; it has {known}"
            )
        return self.root / facts.get("data_dir", f"data/{system}")


def read_yaml(path: Path) -> Any:
    """Parse one YAML file (kept until it changes; do not modify the result)."""
    return _parse_yaml(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=256)
def _parse_yaml(path: Path, changed_ns: int) -> Any:
    with path.open("rb") as stream:
        return yaml.load(stream, Loader=YAML_LOADER)


def find_systems_folder(folder: Path) -> Path | None:
    """Return the systems folder at `folder`, or up to two levels below it."""
    below = (
        sorted(folder.glob(deep)) for deep in ("systems", "*/systems", "*/*/systems")
    )
    for paths in ([folder], *below):
        for path in paths:
            if (path / "data").is_dir() and any(path.glob("*.yaml")):
                return path
    return None


@contextmanager
def open_tree(source: str | Path) -> Iterator[SystemsTree]:
    """Open SOURCE: a folder, a wheel file, or the name of an installed package."""
    path = Path(source).expanduser()
    if path.is_dir():
        yield folder_tree(path)
    elif path.is_file():
        with tempfile.TemporaryDirectory(prefix="aisim-import-") as scratch:
            yield _unpack_wheel(path, Path(scratch))
    else:
        yield _installed(str(source))


def folder_tree(folder: Path) -> SystemsTree:
    """Open a systems folder, or the folder that contains it."""
    root = find_systems_folder(folder)
    if root is None:
        raise InvalidInputError(
            f"{folder} has no systems folder (system .yaml files beside data/); "
            "give the unpacked systems folder or the folder that contains it"
        )
    return SystemsTree(root, _origin_of_folder(root))


def _origin_of_folder(root: Path) -> str:
    """Distribution unpacked around `root`, else the name of the folder."""
    for folder in list(root.parents)[:3]:
        for info in sorted(folder.glob("*.dist-info")):
            record = info / "RECORD"
            marker = f"{root.parent.name}/{root.name}/data/"
            if record.is_file() and marker in record.read_text(encoding="utf-8"):
                name, _, version = info.name[: -len(".dist-info")].partition("-")
                return f"{name.replace('_', '-')} {version}"
    return f"folder {root.name}"


def _unpack_wheel(path: Path, scratch: Path) -> SystemsTree:
    if not zipfile.is_zipfile(path):
        raise InvalidInputError(
            f"{path} is not a wheel; give a .whl file, a systems folder or the name of "
            "an installed package"
        )
    with zipfile.ZipFile(path) as wheel:
        members = [
            name
            for name in wheel.namelist()
            if "/systems/" in name and name.endswith((".parquet", ".yaml", ".txt"))
        ]
        wheel.extractall(scratch, members)
    root = find_systems_folder(scratch)
    if root is None:
        raise InvalidInputError(
            f"{path} holds no systems data; give a wheel of the reference data package"
        )
    name, version = path.name.split("-")[:2]
    return SystemsTree(root, f"{name.replace('_', '-')} {version}")


def _installed(name: str) -> SystemsTree:
    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError as error:
        raise InvalidInputError(
            f"{name} is neither a folder, a wheel file nor an installed package; "
            "install aiconfigurator-core or give a path"
        ) from error
    for file in distribution.files or ():
        if "/systems/data/" in file.as_posix():
            located = Path(str(distribution.locate_file(file)))
            index = located.parts.index("data", located.parts.index("systems"))
            root = Path(*located.parts[:index])
            return SystemsTree(root, f"{name} {distribution.version}")
    raise InvalidInputError(f"installed package {name} holds no systems data")
