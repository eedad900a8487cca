"""Putting answers on stdout."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from rich.console import RenderableType


def console_width() -> int:
    """Characters per line of stdout; 100 where it is not a terminal."""
    from rich.console import Console

    console = Console()
    return console.width if console.is_terminal else 100


def print_renderable(renderable: RenderableType) -> None:
    """Print tables and text for a person."""
    from rich.console import Console

    Console(width=console_width(), highlight=False, soft_wrap=False).print(renderable)


def print_text(text: str) -> None:
    """Print machine-readable text as it is."""
    sys.stdout.write(text if text.endswith("\n") else text + "\n")
