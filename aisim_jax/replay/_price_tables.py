"""Pass prices as tables over a bounded region, filled on the host."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Int

from ..estimators import OpLevelBatch
from ..kernels.replay import UNPRICED_NS, DecodeTable, PrefillTable


# Tables come in powers of two, so that programs are shared.
LEAST_CELLS, LEAST_ROWS = 1024, 32


def decode_table(
    batch: OpLevelBatch,
    lane: int,
    first: int,
    last: Int[np.ndarray, " rows"],
    *,
    one_by_one: bool,
) -> DecodeTable:
    """Decode of n = 1, 2, ... requests at lengths first ... last[n - 1], tokens.

    one_by_one: price by the plain scalar path, which needs no compiled program.
    """
    count = np.maximum(last - first + 1, 0)
    n, offset = _cells(count)
    length = first + offset
    if one_by_one:
        rows = n * (batch.nextn + 1)
        batch.ensure(1, int(rows.max(initial=1)), 1)
        steps = batch.scalar(lane)
        pairs = zip(rows.tolist(), length.tolist(), strict=True)
        raw = np.array([steps.decode_ms(row, kv) for row, kv in pairs], np.float64)
    else:
        raw = batch.decode_ms(np.full(n.shape, lane), n, length)
    # A row of sums has one entry more than prices; it begins with 0.
    sums = np.zeros(n.size + last.size, np.int64)
    sums[np.arange(n.size) + n] = whole_ns(raw)
    start = np.concatenate([[0], np.cumsum(count + 1)])
    for begin, end in pairwise(start):
        np.cumsum(sums[begin:end], out=sums[begin:end])
    return DecodeTable(_padded(sums), _row_starts(start), np.array(first, np.int32))


def prefill_table(
    batch: OpLevelBatch, lane: int, longest: Int[np.ndarray, " rows"], new_tokens: int
) -> PrefillTable:
    """Prefill of n = 1, 2, ... prompts of up to longest[n - 1] tokens.

    new_tokens: most tokens computed in one pass.
    """
    # Means are rounded down one by one, so their difference may be one too many.
    batch.ensure(new_tokens + longest.size, 1, longest.size)
    n, offset = _cells(longest)
    steps = batch.scalar(lane)
    pairs = zip(n.tolist(), (offset + 1).tolist(), strict=True)
    found = [steps.context_attention_ms(rows, full, 0) for rows, full in pairs]
    table = batch.phases[0].tables[lane]
    extra_ms = 0.0 if table is None else table.extra_ms
    constant_ms = float(batch.phases[0].scale[lane]) * extra_ms
    return PrefillTable(
        tokens_ms=batch.host.context_tokens_ms[lane],
        logits_ms=batch.host.logits_ms[lane],
        attention_ms=_padded(np.array(found, np.float64) - constant_ms),
        constant_ms=np.array(constant_ms),
        start=_row_starts(np.concatenate([[0], np.cumsum(longest)])),
    )


def whole_ns(raw_ms: Float[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Prices as whole ns like `duration_ns`; `UNPRICED_NS` where there is none."""
    unknown = np.isnan(raw_ms)
    seconds = np.maximum(np.where(unknown, 0.0, raw_ms), 0.0) / 1000.0
    scaled = seconds * 1e9
    out = np.rint(scaled).astype(np.int64)
    # Near a half the product's own rounding could decide: compare exactly.
    for i in np.flatnonzero(np.abs(scaled - np.floor(scaled) - 0.5) < 1e-6):
        out[i] = round(Fraction(float(seconds[i])) * 10**9)
    return np.where(unknown, UNPRICED_NS, out)


def _cells(count: Int[np.ndarray, " rows"]) -> tuple[np.ndarray, np.ndarray]:
    """Row number (from 1) and place in the row of every cell."""
    n = np.repeat(np.arange(1, count.size + 1), count)
    return n, np.arange(n.size) - (np.cumsum(count) - count)[n - 1]


def _padded(values: np.ndarray) -> np.ndarray:
    room = max(LEAST_CELLS, 1 << max(values.size - 1, 0).bit_length())
    return np.pad(values, (0, room - values.size))


def _row_starts(start: Int[np.ndarray, " n"]) -> Int[np.ndarray, " rows"]:
    """Starts of rows 0 (empty), 1, 2, ...; rows beyond the last are empty too."""
    starts = np.concatenate([[0], start]).astype(np.int32)
    room = max(LEAST_ROWS, 1 << max(starts.size - 1, 0).bit_length())
    return np.pad(starts, (0, room - starts.size), mode="edge")
