"""Where derived files of this user live."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """AISIM_CACHE_DIR, else the platform's cache folder for this user / aisim."""
    chosen = os.environ.get("AISIM_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "aisim"
    if sys.platform == "win32":
        return Path(os.environ["LOCALAPPDATA"]) / "aisim"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "aisim"
