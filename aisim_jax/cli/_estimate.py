"""`aisim estimate`: how long does one forward pass take, and where does it go?"""

from __future__ import annotations


def estimate() -> None:
    """Price one forward pass, operation by operation."""
