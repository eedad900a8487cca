"""The framework's default attention kernel for a version and GPU generation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._sources import parse_version
from ._tree import SystemsTree


def lane_defaults(
    tree: SystemsTree, backend: str, version: str, sm_version: int
) -> dict[str, Any]:
    """Return {"default": lane or None, "architectures": {architecture: lane}}.

    An entry applies from its version on (the highest one not above the request) and
    only to the GPU generations that it lists.
    """
    facts = tree.facts("attention_lane_defaults.yaml") or {}
    by_architecture = {
        name: _floor_match(backends.get(backend) or {}, version, sm_version)
        for name, backends in (facts.get("architectures") or {}).items()
    }
    return {
        "default": _floor_match(facts.get(backend) or {}, version, sm_version),
        "architectures": {name: lane for name, lane in by_architecture.items() if lane},
    }


def _floor_match(
    versions: Mapping[str, Mapping[int, str]], version: str, sm_version: int
) -> str | None:
    asked = parse_version(version)
    known = [(parse_version(name), name) for name in versions]
    below = [
        (parsed, name)
        for parsed, name in known
        if parsed is not None and asked is not None and parsed <= asked
    ]
    if not below:
        return None
    return versions[max(below)[1]].get(sm_version)
