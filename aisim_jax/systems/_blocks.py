"""The one shape that every measured table is stored in: keyed dense blocks.

A table is a list of blocks. A block is a dense grid of latencies over integer axes,
under a key of strings and integers. Gemm: one block per precision over (sites, m);
attention: one block per lane and slice over three axes; and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from ._tables import (
    AttentionKey,
    BmmTable,
    CommTable,
    GemmTable,
    MlaKey,
    MoeTable,
    QuantizeTable,
    RaggedGrid,
)


T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """latency_ms[...] (NaN = not measured) and origin[...] over `axes`.

    An axis is an integer array whose first dimension is the extent of the grid; a
    second dimension holds the coordinates of scattered sites or shapes.
    """

    key: tuple[str | int, ...]
    axes: tuple[np.ndarray, ...]
    latency_ms: np.ndarray
    origin: np.ndarray


def gemm_table(block: Block) -> GemmTable:
    """Block of key (quant,) over (sites [n, k], m)."""
    sites, m = block.axes
    return GemmTable(
        np.ascontiguousarray(sites[:, 0]),
        np.ascontiguousarray(sites[:, 1]),
        m,
        block.latency_ms,
        block.origin,
    )


def attention_tables(
    blocks: Sequence[Block],
) -> dict[str, dict[AttentionKey, RaggedGrid]]:
    """Blocks of key (lane, fmha, kv, kv_heads, head_dim, window), in load order."""
    lanes: dict[str, dict[AttentionKey, RaggedGrid]] = {}
    for block in blocks:
        lane, fmha, kv, kv_heads, head_dim, window = block.key
        key = AttentionKey(
            str(fmha), str(kv), int(kv_heads), int(head_dim), int(window)
        )
        lanes.setdefault(str(lane), {})[key] = ragged_grid(block)
    return lanes


def mla_tables(blocks: Sequence[Block]) -> dict[MlaKey, RaggedGrid]:
    """Blocks of key (fmha, kv, gemm, native_heads)."""
    tables: dict[MlaKey, RaggedGrid] = {}
    for block in blocks:
        fmha, kv, gemm, native_heads = block.key
        key = MlaKey(str(fmha), str(kv), str(gemm), int(native_heads))
        tables[key] = ragged_grid(block)
    return tables


def ragged_grid(block: Block) -> RaggedGrid:
    """Block over three axes."""
    first, second, third = block.axes
    return RaggedGrid((first, second, third), block.latency_ms, block.origin)


def moe_tables(blocks: Sequence[Block]) -> dict[tuple[str, str], MoeTable]:
    """Blocks of key (quant, distribution) over (shapes, tokens)."""
    return {
        (str(block.key[0]), str(block.key[1])): _two_axes(MoeTable, block)
        for block in blocks
    }


def comm_table(block: Block) -> CommTable:
    """Block over (gpus, size)."""
    return _two_axes(CommTable, block)


def bmm_table(block: Block) -> BmmTable:
    """Block over (heads, tokens)."""
    return _two_axes(BmmTable, block)


def quantize_table(block: Block) -> QuantizeTable:
    """Block over (m, k)."""
    return _two_axes(QuantizeTable, block)


def _two_axes(make: Callable[..., T], block: Block) -> T:
    first, second = block.axes
    return make(first, second, block.latency_ms, block.origin)
