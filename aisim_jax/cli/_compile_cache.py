"""Compiled programs are kept on disk, so that the second command starts warm."""

from __future__ import annotations

import os


def enable_compile_cache() -> None:
    """Turn on JAX's persistent cache for this process; a user's own setting wins.

    Every program is stored, however small or quick to compile: a command runs a few
    hundred milliseconds of them. A folder that cannot be written leaves the cache off.
    """
    import jax

    from aisim_jax.systems import cache_folder

    if jax.config.values["jax_compilation_cache_dir"] is not None:
        return
    folder = cache_folder() / "compiled"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    if not os.access(folder, os.W_OK):
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
