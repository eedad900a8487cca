"""The embedded catalogue of checkpoints, and the many names they go by."""

from __future__ import annotations

import difflib
import functools
import json
import re
from importlib import resources
from typing import Any

from .._errors import UnknownModelError


# A checkpoint under these endings has the geometry of the one without.
_NEUTRAL_SUFFIXES = ("-instruct", "-base", "-chat", "-hf", "-it")
_SUFFIX_PATTERN = re.compile(rf"({'|'.join(_NEUTRAL_SUFFIXES)})(?=-|$)")


@functools.cache
def catalogue() -> dict[str, dict[str, Any]]:
    """Entries by canonical name: config, optional hf_quant, source, aliases."""
    text = resources.files("aisim_jax.profiles.models").joinpath("catalogue.json")
    return {e["name"]: e for e in json.loads(text.read_text("utf-8"))["models"]}


def model_names() -> list[str]:
    """Canonical names of all checkpoints in the catalogue, sorted."""
    return sorted(catalogue(), key=str.lower)


def canonical_name(name: str) -> str:
    """Catalogue name that `name` stands for.

    Case is ignored; the organisation may be left out or be that of a re-upload; the
    endings -Instruct, -Base, -Chat, -hf and -it are neutral unless the catalogue
    tells them apart. Precision endings (-FP8, -NVFP4, ...) are never dropped.
    """
    index = _index()
    wanted = name.strip().lower()
    bare = wanted.rsplit("/", 1)[-1]
    for key in (wanted, bare, _neutral(wanted), _neutral(bare)):
        if key in index:
            return index[key]
    raise UnknownModelError(
        f"model {name!r} is not in the catalogue; closest are {_closest(bare)}; give "
        "one of these, or the path of a local directory that holds its config.json."
    )


@functools.cache
def _index() -> dict[str, str]:
    """Accepted spelling (lower case) -> canonical name; exact spellings win."""
    exact: dict[str, str] = {}
    loose: dict[str, str] = {}
    for name, entry in catalogue().items():
        for spelling in (name, *entry.get("aliases", ())):
            lower = spelling.lower()
            exact.setdefault(lower, name)
            exact.setdefault(lower.rsplit("/", 1)[-1], name)
            loose.setdefault(_neutral(lower), name)
            loose.setdefault(_neutral(lower.rsplit("/", 1)[-1]), name)
    return {**loose, **exact}


def _neutral(name: str) -> str:
    return _SUFFIX_PATTERN.sub("", name)


def _closest(bare: str) -> str:
    spellings = {n.rsplit("/", 1)[-1].lower(): n for n in catalogue()}
    found = difflib.get_close_matches(bare, spellings, n=3, cutoff=0.0)
    return ", ".join(spellings[key] for key in found)
