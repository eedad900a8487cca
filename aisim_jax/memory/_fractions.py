"""Memory fractions that engines use when the user names none."""

from __future__ import annotations

from aisim_jax._units import GIB, MIB
from aisim_jax.models import Layout

from ._constants import COMPAT, MemoryConstants


# (capacity below, chunked prefill tokens, captured batch below tp 4, from tp 4 on)
_SGLANG_TIERS = (
    (20 * GIB, 2048, 8, 8),
    (35 * GIB, 2048, 24, 80),
    (60 * GIB, 4096, 32, 160),
    (160 * GIB, 8192, 256, 512),
    (float("inf"), 16384, 512, 512),
)
_SGLANG_METADATA_MIB = 512
_SGLANG_LARGE_CAPTURE = 300


def sglang_static_fraction(capacity_bytes: int, layout: Layout) -> float:
    """Return the `mem_fraction_static` that SGLang derives, rounded to 3 decimals.

    (M - reserve) / M in MiB, reserve = 512 + 1.5 * chunk + 2 * graph_batch
    + tp * pp / 8 * 1024, and with attention data parallelism another
    3 * graph_batch * dp, or 4.5 * graph_batch * dp above 300 captured requests. Chunk
    and graph batch follow from the device's size and tp.
    """
    chunk, small, large = next(
        tier[1:] for tier in _SGLANG_TIERS if capacity_bytes < tier[0]
    )
    graph_batch = small if layout.tp < 4 else large
    reserve_mib = _SGLANG_METADATA_MIB + 1.5 * chunk + 2 * graph_batch
    reserve_mib += layout.tp * layout.pp / 8 * 1024
    if layout.dp > 1:
        per_rank = 4.5 if graph_batch > _SGLANG_LARGE_CAPTURE else 3
        reserve_mib += per_rank * graph_batch * layout.dp
    capacity_mib = capacity_bytes / MIB
    return round((capacity_mib - reserve_mib) / capacity_mib, 3)


def serving_fraction(
    backend: str,
    version: str,
    *,
    capacity_bytes: int,
    layout: Layout,
    static: bool = False,
    constants: MemoryConstants = COMPAT,
) -> float:
    """Return the memory fraction of an engine that was given none.

    static: a dedicated prefill or decode worker (SGLang derives its own fraction)
    """
    engine = constants.engines[backend]
    if static and engine.derives_static_fraction:
        return sglang_static_fraction(capacity_bytes, layout)
    release = ".".join(version.split(".")[:2])
    return engine.version_fractions.get(release, engine.default_fraction)
