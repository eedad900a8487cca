"""Precisions: bytes per weight element, compute factor, tensor-core rate that applies."""

from __future__ import annotations

from typing import NamedTuple


class Quant(NamedTuple):
    """One precision mode."""

    bytes: float
    factor: int
    flops: str


QUANT_MODES: dict[str, Quant] = {
    "bfloat16": Quant(2, 1, "bfloat16"),
    "int8_wo": Quant(1, 1, "bfloat16"),
    "int4_wo": Quant(0.5, 1, "bfloat16"),
    "fp8": Quant(1, 2, "fp8"),
    "fp8_static": Quant(1, 2, "fp8"),
    "fp8_block": Quant(1, 2, "fp8"),
    "fp8_ootb": Quant(1, 2, "fp8"),
    "sq": Quant(1, 2, "int8"),
    "nvfp4": Quant(9 / 16, 4, "fp4"),
    "nvfp4_wo": Quant(9 / 16, 1, "bfloat16"),
    "w4a16_nvfp4": Quant(9 / 16, 1, "bfloat16"),
    "w4afp8": Quant(0.5, 2, "fp8"),
    "w4a16_mxfp4": Quant(0.5, 1, "bfloat16"),
    "w4a16_mxfp4_cutlass": Quant(0.5, 1, "bfloat16"),
    "w4a16_mxfp4_humming": Quant(0.5, 1, "bfloat16"),
    "w4a8_mxfp4_mxfp8": Quant(0.5, 2, "fp8"),
    "w4a8_mxfp4_mxfp8_trtllm": Quant(0.5, 2, "fp8"),
    "w4a8_mxfp4_mxfp8_cutlass": Quant(0.5, 2, "fp8"),
}

KV_BYTES: dict[str, int] = {"bfloat16": 2, "int8": 1, "fp8": 1}
COMM_BYTES: dict[str, int] = {"half": 2, "int8": 1, "fp8": 1}
