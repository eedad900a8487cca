"""What an engine iteration scheduled, from the records that consumers exchange.

An iteration is one record per attention-data-parallel rank, or one record alone.
`scheduled_requests` holds seven counters; absent ones are zero. Wall time and the queue
do not matter for an estimate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .._errors import InvalidInputError


COUNTERS = (
    "num_prefill_requests",
    "sum_prefill_tokens",
    "var_prefill_length",
    "sum_prefill_kv_tokens",
    "num_decode_requests",
    "sum_decode_kv_tokens",
    "var_decode_kv_tokens",
)
U32 = (1 << 32) - 1


class Scheduled(NamedTuple):
    """One rank's five priced sums (the two variances do not enter this estimator)."""

    requests: int
    new: int
    cached: int
    decodes: int
    kv: int


def parse_iteration(iteration: Any) -> list[Scheduled]:
    """Ranks of one iteration. Raises InvalidInputError naming the field at fault."""
    records = [iteration] if isinstance(iteration, Mapping) else iteration
    if not isinstance(records, Sequence) or isinstance(records, str | bytes):
        raise InvalidInputError(
            f"an iteration is one record or a list of them, got {type(iteration).__name__}"
        )
    return [_rank(record, f"[{i}]") for i, record in enumerate(records)]


def _rank(record: Any, place: str) -> Scheduled:
    if not isinstance(record, Mapping):
        raise InvalidInputError(f"{place}: a rank record is a mapping")
    version = record.get("version", 1)
    if version not in (0, 1):
        raise InvalidInputError(
            f"{place}.version: {version!r} is not supported; send version 0 or 1"
        )
    work = record.get("scheduled_requests", record)
    if not isinstance(work, Mapping):
        raise InvalidInputError(f"{place}.scheduled_requests: expected a mapping")

    def count(name: str) -> int:
        value = work.get(name, 0)
        whole = isinstance(value, int | float) and not isinstance(value, bool)
        if not whole or value != value or not 0 <= value <= U32 or value != int(value):
            raise InvalidInputError(
                f"{place}.{name}: {value!r} is not a count between 0 and {U32}"
            )
        return int(value)

    return Scheduled(
        count("num_prefill_requests"),
        count("sum_prefill_tokens"),
        count("sum_prefill_kv_tokens"),
        count("num_decode_requests"),
        count("sum_decode_kv_tokens"),
    )


def scheduled_arrays(scheduled: Any) -> tuple[np.ndarray, ...]:
    """The five priced counters as float arrays [n, ranks] from a struct of arrays.

    `scheduled` maps counter names to arrays [n, ranks] (or [n] for one rank), or has
    them as attributes or as fields of a NumPy structured array; absent counters are zero.
    """
    if isinstance(scheduled, np.ndarray) and scheduled.dtype.names:
        columns: dict[str, Any] = {
            name: scheduled[name] for name in scheduled.dtype.names
        }
    elif isinstance(scheduled, Mapping):
        columns = dict(scheduled)
    else:
        columns = {name: getattr(scheduled, name) for name in COUNTERS}
    unknown = sorted(set(columns) - set(COUNTERS))
    if unknown:
        raise InvalidInputError(
            f"scheduled: unknown counters {', '.join(unknown)}; use {', '.join(COUNTERS)}"
        )
    given = [np.asarray(values, np.float64) for values in columns.values()]
    if not given:
        raise InvalidInputError("scheduled: no counter was given")
    try:
        shape = np.broadcast_shapes(*(a.shape for a in given))
    except ValueError:
        shapes = ", ".join(f"{n} {np.shape(c)}" for n, c in columns.items())
        raise InvalidInputError(
            f"scheduled: counters of different shapes ({shapes}); give [n, ranks] each"
        ) from None
    if len(shape) not in (1, 2):
        raise InvalidInputError(
            f"scheduled: counters have {len(shape)} axes; give [n] or [n, ranks]"
        )
    out = []
    for name in COUNTERS:
        if name.startswith("var_"):
            continue
        column = np.asarray(columns.get(name, 0), np.float64)
        if not np.isfinite(column).all() or (column < 0).any():
            raise InvalidInputError(f"scheduled.{name}: counts must be finite and >= 0")
        full = np.broadcast_to(column, shape)
        out.append(full[:, None] if full.ndim == 1 else full)
    return tuple(out)
