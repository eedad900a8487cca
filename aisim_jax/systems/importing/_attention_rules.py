"""Row rules of attention: slices per kernel lane, and latent attention (MLA)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .._blocks import Block
from ._grids import grid_block, split
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
