"""Row rules of each table family: which rows count, under which key, on which axes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .._blocks import Block
from ._grids import curves_block, grid_block, group_codes, split
from ._rows import Rows


ATTENTION_NUMBERS = (
    "batch_size",
    "isl",
    "step",
    "num_heads",
    "num_key_value_heads",
    "head_dim",
    "window_size",
)
ATTENTION_TEXTS = ("kernel_source", "attn_dtype", "kv_cache_dtype")
MLA_NUMBERS = ("batch_size", "isl", "step", "num_heads", "tp_size")
MLA_TEXTS = ("mla_dtype", "kv_cache_dtype", "gemm_type", "model")
MOE_NUMBERS = (
    "topk",
    "num_experts",
    "hidden_size",
    "inter_size",
    "moe_tp_size",
    "moe_ep_size",
    "num_tokens",
)
SKIPPED_GEMM = ("awq", "gptq")
LOW_LATENCY_KERNEL = "moe_torch_flow_min_latency"
# Expert kernels that are precisions of their own: (precision, kernel) -> precision.
MOE_RENAMES = {
    (
        "w4a8_mxfp4_mxfp8",
        "sglang_mxfp4_flashinfer_trtllm_moe",
    ): "w4a8_mxfp4_mxfp8_trtllm",
    ("w4a16_mxfp4", "sglang_flashinfer_cutlass_moe"): "w4a16_mxfp4_cutlass",
}


@dataclass(frozen=True, slots=True)
class Family:
    """How one parquet table becomes named lists of blocks."""

    folder: str
    table: str
    numbers: tuple[str, ...]
    texts: tuple[str, ...]
    build: Callable[[Rows], dict[str, list[Block]]]


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


def context_attention_blocks(rows: Rows) -> dict[str, list[Block]]:
    """Slices per lane over (heads, full sequence, batch)."""
    return {"context_attention": _attention_blocks(rows, is_context=True)}


def generation_attention_blocks(rows: Rows) -> dict[str, list[Block]]:
    """Slices per lane over (heads, batch, sequence = isl + step)."""
    return {"generation_attention": _attention_blocks(rows, is_context=False)}


def _attention_blocks(rows: Rows, *, is_context: bool) -> list[Block]:
    heads = rows.numbers["num_heads"]
    kv_heads = np.where(
        heads == rows.numbers["num_key_value_heads"],
        0,
        rows.numbers["num_key_value_heads"],
    )
    lane, fmha, kv = (rows.texts[name] for name in ATTENTION_TEXTS)
    key = [lane.codes, kv.codes, kv_heads]
    key += [rows.numbers["head_dim"], rows.numbers["window_size"]]
    if is_context:
        key.append(fmha.codes)
    blocks = []
    for row, members in split(rows, key):
        name = (
            lane.values[lane.codes[row]],
            fmha.values[fmha.codes[row]] if is_context else "",
            kv.values[kv.codes[row]],
            int(kv_heads[row]),
            int(rows.numbers["head_dim"][row]),
            int(rows.numbers["window_size"][row]),
        )
        blocks.append(_sequence_block(name, rows.take(members), is_context=is_context))
    return blocks


def _sequence_block(
    key: tuple[str | int, ...], rows: Rows, *, is_context: bool
) -> Block:
    heads, batch = rows.numbers["num_heads"], rows.numbers["batch_size"]
    if is_context:
        return grid_block(key, rows, (heads, rows.numbers["isl"], batch))
    sequence = rows.numbers["isl"] + rows.numbers["step"]
    return grid_block(key, rows, (heads, batch, sequence))


def mla_blocks(name: str, *, is_context: bool) -> Callable[[Rows], dict]:
    """Builder of the MLA table `name`; modules also split by gemm mode and model."""

    def build(rows: Rows) -> dict[str, list[Block]]:
        fmha, kv, gemm, _ = (rows.texts[column] for column in MLA_TEXTS)
        native = _native_heads(rows)
        key = [kv.codes, gemm.codes, native]
        if is_context:
            key.append(fmha.codes)
        blocks = []
        for row, members in split(rows, key):
            names = (
                fmha.values[fmha.codes[row]] if is_context else "",
                kv.values[kv.codes[row]],
                gemm.values[gemm.codes[row]],
                int(native[row]),
            )
            part = rows.take(members)
            blocks.append(_sequence_block(names, part, is_context=is_context))
        return {name: blocks}

    return build


def _native_heads(rows: Rows) -> np.ndarray:
    """Head count of the row's model: the most heads that its rows shard; 0 = unnamed."""
    model = rows.texts["model"]
    heads = rows.numbers["num_heads"] * np.maximum(rows.numbers["tp_size"], 1)
    native = np.zeros(len(model.values), dtype=np.int64)
    np.maximum.at(native, model.codes, heads)
    native[[not value for value in model.values]] = 0
    return native[model.codes]


def moe_blocks(rows: Rows) -> dict[str, list[Block]]:
    """Expert curves per (precision, distribution); low-latency kernels apart."""
    quant, kernel = rows.texts["moe_dtype"], rows.texts["kernel_source"]
    distribution = rows.texts["distribution"]
    is_low = np.array([value == LOW_LATENCY_KERNEL for value in kernel.values])
    names: list[str] = []
    pairs, pair_of_row = np.unique(
        np.stack([quant.codes, kernel.codes]), axis=1, return_inverse=True
    )
    renamed = np.empty(pairs.shape[1], dtype=np.int64)
    for index, (quant_code, kernel_code) in enumerate(pairs.T):
        plain = quant.values[quant_code]
        name = MOE_RENAMES.get((plain, kernel.values[kernel_code]), plain)
        if name not in names:
            names.append(name)
        renamed[index] = names.index(name)
    mode = renamed[pair_of_row.reshape(-1)]
    low = is_low[kernel.codes].astype(np.int64)
    tables: dict[str, list[Block]] = {}
    for row, members in split(rows, [low, mode, distribution.codes]):
        part = rows.take(members)
        *shape, tokens = (part.numbers[name] for name in MOE_NUMBERS)
        key = (names[mode[row]], distribution.values[distribution.codes[row]])
        table = "moe_low_latency" if low[row] else "moe"
        tables.setdefault(table, []).append(curves_block(key, part, shape, tokens))
    return tables


def allreduce_blocks(rows: Rows) -> dict[str, list[Block]]:
    """All-reduce over (ranks, elements); eager rows are left out, dtype is ignored."""
    eager = np.zeros(len(rows.latency_ms), dtype=bool)
    for name in ("kernel_source", "backend"):
        text = rows.texts[name]
        ends = np.array([value.endswith("_eager") for value in text.values], dtype=bool)
        eager |= ends[text.codes]
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
        ("moe_dtype", "distribution", "kernel_source"),
        moe_blocks,
    ),
    Family(
        "comm",
        "custom_allreduce_perf",
        ("num_gpus", "message_size"),
        ("kernel_source", "backend"),
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
