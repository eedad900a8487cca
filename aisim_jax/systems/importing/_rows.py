"""Rows of one table over all its sources, as NumPy columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..._errors import InvalidInputError
from ._sources import Source


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """A column of strings: values[codes[row]]; values in order of first appearance."""

    codes: np.ndarray
    values: tuple[str, ...]

    def matches(self, holds: Callable[[str], bool]) -> np.ndarray:
        """Rows whose text satisfies `holds`."""
        return np.array([holds(value) for value in self.values], bool)[self.codes]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Columns of equal length, in load order; `origin` is a code of the source."""

    numbers: dict[str, np.ndarray]
    texts: dict[str, Text]
    latency_ms: np.ndarray
    origin: np.ndarray

    def take(self, keep: np.ndarray) -> Rows:
        """Rows under a boolean mask (or at the given indices)."""
        return Rows(
            {name: column[keep] for name, column in self.numbers.items()},
            {
                name: Text(text.codes[keep], text.values)
                for name, text in self.texts.items()
            },
            self.latency_ms[keep],
            self.origin[keep],
        )

    def where(self, name: str, value: str) -> Rows:
        """Rows whose text column `name` equals `value`."""
        text = self.texts[name]
        if value not in text.values:
            return self.take(np.zeros(len(self.latency_ms), dtype=bool))
        return self.take(text.codes == text.values.index(value))

    def present(self, name: str) -> list[str]:
        """Values of the text column `name` that occur, in order of appearance."""
        text = self.texts[name]
        codes, first = np.unique(text.codes, return_index=True)
        return [text.values[code] for code in codes[np.argsort(first)]]


def read_rows(
    sources: Sequence[tuple[int, Source]],
    numbers: Sequence[str],
    texts: Sequence[str],
) -> Rows:
    """Read the named columns of (origin code, source) pairs, in order.

    An absent column or an empty field reads as 0 or "".
    """
    import pyarrow as pa

    tables = [_read_table(source, code, numbers, texts) for code, source in sources]
    table = pa.concat_tables(tables)
    return Rows(
        {name: table[name].to_numpy() for name in numbers},
        {name: _text(table[name]) for name in texts},
        table["latency"].to_numpy(),
        table["origin"].to_numpy(),
    )


def _read_table(
    source: Source, code: int, numbers: Sequence[str], texts: Sequence[str]
):
    """One file as an arrow table of int64, string and float64 columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(source.path)
    except (pa.ArrowInvalid, OSError) as error:
        raise InvalidInputError(
            f"{source.path} is not a readable parquet file ({error}); fetch the data "
            "again (a Git LFS pointer must be replaced by its content)"
        ) from error
    if source.kernels is not None:
        kernels = table["kernel_source"].to_pylist()
        table = table.filter(pa.array([name in source.kernels for name in kernels]))
    count = table.num_rows
    columns = {"latency": table["latency"].cast(pa.float64())}
    columns["origin"] = pa.chunked_array([pa.array(np.full(count, code, np.uint8))])
    for name in numbers:
        columns[name] = (
            table[name].cast(pa.int64()).fill_null(0)
            if name in table.column_names
            else pa.chunked_array([pa.array(np.zeros(count, np.int64))])
        )
    for name in texts:
        columns[name] = (
            table[name].cast(pa.string()).fill_null("")
            if name in table.column_names
            else pa.chunked_array([pa.array([""] * count, pa.string())])
        )
    return pa.table(columns)


def _text(column) -> Text:
    encoded = column.combine_chunks().dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return Text(codes, tuple(encoded.dictionary.to_pylist()))
