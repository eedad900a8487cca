"""Row rules of matrix kernels: GEMM, the MLA batched matmuls, the scale kernels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .._blocks import Block
from ._grids import curves_block, grid_block, group_codes, split
from ._rows import Rows


SKIPPED_GEMM = ("awq", "gptq")


def gemm_blocks(rows: Rows) -> dict[str, list[Block]]:
    """One table "gemm/<precision>" each, sites as the mapping m -> n -> k is walked."""
    tables = {}
    for quant in rows.present("gemm_dtype"):
        if quant in SKIPPED_GEMM:
            continue
        part = rows.where("gemm_dtype", quant)
        m, n, k = (part.numbers[name] for name in ("m", "n", "k"))
        group_m, first_m = group_codes([m])
        group_n, first_n = group_codes([m, n])
        row = np.arange(len(m))
        walk = np.lexsort((row, first_n[group_n], first_m[group_m]))
        rank = np.empty_like(walk)
        rank[walk] = row
        block = curves_block((quant,), part, (n, k), m, rank)
        tables[f"gemm/{quant}"] = [block]
    return tables


def bmm_blocks(rows: Rows) -> dict[str, list[Block]]:
    """MLA batched matmuls per (precision, operation) over (heads, tokens)."""
    quant, operation = rows.texts["bmm_dtype"], rows.texts["op_name"]
    blocks = []
    for row, members in split(rows, [quant.codes, operation.codes]):
        part = rows.take(members)
        key = (quant.values[quant.codes[row]], operation.values[operation.codes[row]])
        coordinates = (part.numbers["num_heads"], part.numbers["num_tokens"])
        blocks.append(grid_block(key, part, coordinates))
    return {"mla_bmm": blocks}


def quantize_blocks(name: str) -> Callable[[Rows], dict]:
    """Builder of the scale-kernel table `name` over (m, k), per precision."""

    def build(rows: Rows) -> dict[str, list[Block]]:
        blocks = []
        for quant in rows.present("quant_dtype"):
            part = rows.where("quant_dtype", quant)
            coordinates = (part.numbers["m"], part.numbers["k"])
            blocks.append(grid_block((quant,), part, coordinates))
        return {name: blocks}

    return build
