"""The one numeric scope: float64 inside, the caller's global flags untouched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def precision() -> Iterator[None]:
    """Run jax code in 64-bit mode for the duration of a `with` block.

    Public entry points open this scope themselves and return NumPy arrays. Open it
    yourself to `jit`, `vmap` or `grad` through this package's functions, and keep what
    you compute inside: a jax array that leaves the scope degrades to 32 bits silently.

    >>> import jax.numpy as jnp
    >>> with precision():
    ...     float(jnp.float64(1) + 1e-12) > 1
    True
    """
    import jax

    with jax.enable_x64(True):
        yield
