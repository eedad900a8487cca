"""Measurements that are known to mislead, as sentences for the person who uses them."""

from __future__ import annotations

import numpy as np

from ._tables import GemmTable


# Own rows timed without graph capture; later data leaves them out.
EAGER_GEMM = {("vllm", "0.24.0", "fp8_block")}


def gemm_cautions(
    backend: str, version: str, quant: str, table: GemmTable | None
) -> tuple[str, ...]:
    """What to know about the GEMM curves of one precision; usually nothing."""
    if table is None or (backend, version, quant) not in EAGER_GEMM:
        return ()
    own = ~np.isnan(table.latency_ms) & (table.origin == 0)
    if not own.any():
        return ()
    return (
        f"{backend} {version} {quant} GEMM figures of this data were timed without "
        "graph capture, so small batches look slower than they are; newer data has "
        "graph-timed figures",
    )
