"""Row rules of mixture-of-experts kernels."""

from __future__ import annotations

import numpy as np

from .._blocks import Block
from ._grids import curves_block, split
from ._rows import Rows, Text


MOE_NUMBERS = (
    "topk",
    "num_experts",
    "hidden_size",
    "inter_size",
    "moe_tp_size",
    "moe_ep_size",
    "num_tokens",
)
LOW_LATENCY_KERNEL = "moe_torch_flow_min_latency"
# Expert kernels that are precisions of their own: (precision, kernel) -> precision.
MOE_RENAMES: dict[tuple[str, str], str] = {
    (
        "w4a8_mxfp4_mxfp8",
        "sglang_mxfp4_flashinfer_trtllm_moe",
    ): "w4a8_mxfp4_mxfp8_trtllm",
    ("w4a16_mxfp4", "sglang_flashinfer_cutlass_moe"): "w4a16_mxfp4_cutlass",
}


def moe_blocks(rows: Rows) -> dict[str, list[Block]]:
    """Expert curves per (precision, distribution); low-latency kernels apart.

    Rows that say they are not for default use are left out.
    """
    rows = rows.take(~rows.texts["default_eligible"].matches("false".__eq__))
    quant, kernel = rows.texts["moe_dtype"], rows.texts["kernel_source"]
    distribution = rows.texts["distribution"]
    mode = _expert_modes(quant, kernel)
    low = kernel.matches(LOW_LATENCY_KERNEL.__eq__).astype(np.int64)
    tables: dict[str, list[Block]] = {}
    for row, members in split(rows, [low, mode.codes, distribution.codes]):
        part = rows.take(members)
        *shape, tokens = (part.numbers[name] for name in MOE_NUMBERS)
        key = (
            mode.values[mode.codes[row]],
            distribution.values[distribution.codes[row]],
        )
        table = "moe_low_latency" if low[row] else "moe"
        tables.setdefault(table, []).append(curves_block(key, part, shape, tokens))
    return tables


def _expert_modes(quant: Text, kernel: Text) -> Text:
    """Precision of each row, where a few kernels make a precision of their own."""
    pair = quant.codes * len(kernel.values) + kernel.codes
    used, code = np.unique(pair, return_inverse=True)
    modes: list[str] = []
    for index in used.tolist():
        name: str = quant.values[index // len(kernel.values)]
        key = (name, kernel.values[index % len(kernel.values)])
        modes.append(MOE_RENAMES.get(key, name))
    names = tuple(dict.fromkeys(modes))
    return Text(np.array([names.index(mode) for mode in modes])[code], names)
