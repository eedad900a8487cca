"""Shared test settings. Must not import the package (jaxtyping hooks its import)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def _programs_do_not_pile_up(request: pytest.FixtureRequest) -> Iterator[None]:
    """Replays compile large programs: none outlives its module."""
    yield
    if request.module.__name__.startswith(("test_replay", "test_search")):
        import jax

        jax.clear_caches()
