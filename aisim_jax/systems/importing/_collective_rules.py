"""Row rules of collectives: the framework's own all-reduce, NCCL and oneCCL."""

from __future__ import annotations

import numpy as np

from .._blocks import Block
from ._grids import grid_block, split
from ._rows import Rows


def allreduce_blocks(rows: Rows) -> dict[str, list[Block]]:
    """All-reduce over (ranks, elements); the dtype column is ignored.

    Eager rows are left out, except on Intel GPUs, which have no graph capture.
    """
    eager = np.zeros(len(rows.latency_ms), dtype=bool)
    for name in ("kernel_source", "backend"):
        eager |= rows.texts[name].matches(lambda value: value.endswith("_eager"))
    eager &= ~rows.texts["device"].matches(lambda name: name.startswith("Intel"))
    part = rows.take(~eager)
    if len(part.latency_ms) == 0:
        return {}
    return {"allreduce": [_collective_block((), part)]}


def nccl_blocks(rows: Rows) -> dict[str, list[Block]]:
    """Collectives per (operation, dtype) over (ranks, elements)."""
    operation, dtype = rows.texts["op_name"], rows.texts["nccl_dtype"]
    blocks = []
    for row, members in split(rows, [operation.codes, dtype.codes]):
        key = (operation.values[operation.codes[row]], dtype.values[dtype.codes[row]])
        blocks.append(_collective_block(key, rows.take(members)))
    return {"nccl": blocks}


def _collective_block(key: tuple[str | int, ...], rows: Rows) -> Block:
    coordinates = (rows.numbers["num_gpus"], rows.numbers["message_size"])
    return grid_block(key, rows, coordinates)
