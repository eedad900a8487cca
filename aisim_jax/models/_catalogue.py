"""The embedded catalogue of checkpoints, and the many names they go by."""

from __future__ import annotations

import difflib
import functools
import json
import re
from collections import defaultdict
from importlib import resources
from typing import Any, NamedTuple

from .._errors import UnknownModelError


# A checkpoint with one of these endings has the geometry of the one without.
_NEUTRAL = re.compile(r"-(instruct|base|chat|hf|it)(?=-|$)")
# Endings of re-quantised uploads: there the organisation tells the recipe apart.
_REQUANTISED = re.compile(r"-(fp8|fp8-dynamic|nvfp4|fp4)$")


class _Index(NamedTuple):
    """Lower-case spelling -> canonical names that it may stand for."""

    exact: dict[str, list[str]]
    loose: dict[str, list[str]]


@functools.cache
def catalogue() -> dict[str, dict[str, Any]]:
    """Entries by canonical name: config, optional hf_quant, like, aliases, source."""
    text = resources.files("aisim_jax.profiles.models").joinpath("catalogue.json")
    return {e["name"]: e for e in json.loads(text.read_text("utf-8"))["models"]}


def model_names() -> list[str]:
    """Canonical names of all checkpoints in the catalogue, sorted."""
    return sorted(catalogue(), key=str.lower)


def canonical_name(name: str) -> str:
    """Catalogue name that `name` stands for.

    Case is ignored; the organisation may be left out, or be that of a re-upload; the
    endings -Instruct, -Base, -Chat, -hf and -it are neutral unless the catalogue
    tells them apart. A precision ending (-FP8, -NVFP4, ...) is never dropped, and
    with one the organisation must be the one in the catalogue.
    """
    index = _index()
    wanted = name.strip().lower()
    organisation, _, bare = wanted.rpartition("/")
    for spellings, key in (
        (index.exact, wanted),
        (index.exact, bare),
        (index.loose, _NEUTRAL.sub("", wanted)),
        (index.loose, _NEUTRAL.sub("", bare)),
    ):
        found = spellings.get(key, [])
        if key.count("/") == 0 and organisation and _REQUANTISED.search(bare):
            found = []
        if len(found) > 1:
            raise UnknownModelError(
                f"model {name!r} stands for more than one checkpoint; give one of "
                f"{', '.join(found)}."
            )
        if found:
            return found[0]
    known = _closest(bare)
    nearest = f"; closest are {known}; give one of these, or" if known else "; give"
    raise UnknownModelError(
        f"model {name!r} is not in the catalogue{nearest} the path of a local directory "
        "that holds its config.json (names: `aisim profiles models`)."
    )


@functools.cache
def _index() -> _Index:
    exact: defaultdict[str, list[str]] = defaultdict(list)
    loose: defaultdict[str, list[str]] = defaultdict(list)
    for name, entry in catalogue().items():
        for spelling in (name, *entry.get("aliases", ())):
            full = spelling.lower()
            for key in (full, full.rpartition("/")[2]):
                for spellings, form in ((exact, key), (loose, _NEUTRAL.sub("", key))):
                    if name not in spellings[form]:
                        spellings[form].append(name)
    return _Index(dict(exact), dict(loose))


def _closest(bare: str) -> str:
    spellings = {n.rpartition("/")[2].lower(): n for n in catalogue()}
    found = difflib.get_close_matches(bare, spellings, n=3, cutoff=0.6)
    return ", ".join(spellings[key] for key in found)
