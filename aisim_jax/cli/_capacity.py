"""`aisim capacity`: does it fit, and how many requests fit at once?"""

from __future__ import annotations


def capacity() -> None:
    """Show where a GPU's memory goes and what the KV cache holds."""
