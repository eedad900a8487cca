"""The table families: which file, which columns, which row rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .._blocks import Block
from ._attention_rules import (
    ATTENTION_NUMBERS,
    ATTENTION_TEXTS,
    MLA_NUMBERS,
    MLA_TEXTS,
    context_attention_blocks,
    generation_attention_blocks,
    mla_blocks,
)
from ._collective_rules import allreduce_blocks, nccl_blocks
from ._expert_rules import MOE_NUMBERS, moe_blocks
from ._matrix_rules import bmm_blocks, gemm_blocks, quantize_blocks
from ._rows import Rows


@dataclass(frozen=True, slots=True)
class Family:
    """How one parquet table becomes named lists of blocks."""

    folder: str
    table: str
    numbers: tuple[str, ...]
    texts: tuple[str, ...]
    build: Callable[[Rows], dict[str, list[Block]]]


NCCL = Family(
    "comm",
    "nccl_perf",
    ("num_gpus", "message_size"),
    ("op_name", "nccl_dtype"),
    nccl_blocks,
)

FAMILIES = (
    Family("gemm", "gemm_perf", ("m", "n", "k"), ("gemm_dtype",), gemm_blocks),
    Family(
        "attention",
        "context_attention_perf",
        ATTENTION_NUMBERS,
        ATTENTION_TEXTS,
        context_attention_blocks,
    ),
    Family(
        "attention",
        "generation_attention_perf",
        ATTENTION_NUMBERS,
        ATTENTION_TEXTS,
        generation_attention_blocks,
    ),
    Family(
        "moe",
        "moe_perf",
        MOE_NUMBERS,
        ("moe_dtype", "distribution", "kernel_source", "default_eligible"),
        moe_blocks,
    ),
    Family(
        "comm",
        "custom_allreduce_perf",
        ("num_gpus", "message_size"),
        ("kernel_source", "backend", "device"),
        allreduce_blocks,
    ),
    *(
        Family(
            "mla",
            f"{table}_perf",
            MLA_NUMBERS,
            MLA_TEXTS,
            mla_blocks(name, is_context=is_context),
        )
        for table, name, is_context in (
            ("context_mla", "context_mla", True),
            ("generation_mla", "generation_mla", False),
            ("mla_context_module", "context_mla_module", True),
            ("mla_generation_module", "generation_mla_module", False),
        )
    ),
    Family(
        "mla_bmm",
        "mla_bmm_perf",
        ("num_heads", "num_tokens"),
        ("bmm_dtype", "op_name"),
        bmm_blocks,
    ),
    *(
        Family(
            "quantize",
            f"{table}_perf",
            ("m", "k"),
            ("quant_dtype",),
            quantize_blocks(name),
        )
        for table, name in (
            ("computescale", "compute_scale"),
            ("scale_matrix", "scale_matrix"),
        )
    ),
)
