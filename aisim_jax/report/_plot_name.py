"""Which pictures can be written."""

from __future__ import annotations

from pathlib import Path

from aisim_jax._errors import InvalidInputError


def check_plot_name(path: Path) -> None:
    """Refuse a name that says neither HTML nor PNG."""
    if path.suffix.lower() not in (".html", ".png"):
        raise InvalidInputError(
            f"--plot {str(path)!r}: the name must end in .html or .png."
        )
