"""Single golden operations: one record, one query, one latency."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from goldens import load_golden
from op_level_cases import BUILT_MODES, differences
from op_records import record

from aisim_jax._errors import MissingPerfDataError
from aisim_jax.estimators._breakdown import OperationPrice, Query, price_entries
from aisim_jax.estimators._lowering import lower
from aisim_jax.estimators._token_curves import TokenPricer
from aisim_jax.systems import load_tables


ERRORS = ("PerfDataNotAvailableError", "EmpiricalNotImplementedError")
TABLE_LESS = ("Elementwise", "Embedding", "P2P")


def served_points(name: str) -> list[dict[str, Any]]:
    """Points of the built modes that do not need an estimate from other shapes."""
    return [
        point
        for point in load_golden(name)["points"]
        if point["mode"] in BUILT_MODES
        and (point.get("source") != "empirical" or kind_of(point) in TABLE_LESS)
    ]


def kind_of(point: dict[str, Any]) -> str:
    """The kind of the operation."""
    return next(iter(point["op"]))


@cache
def pricer(
    system: str, backend: str, version: str, analytic: bool, roots: tuple[str, ...]
) -> TokenPricer:
    """Tables ready to price, read once."""
    return TokenPricer(load_tables(system, backend, version, roots), analytic=analytic)


def price(point: dict[str, Any], roots: Sequence[str] = ()) -> OperationPrice:
    """The package's price of a point. Raises MissingPerfDataError."""
    where = (point["system"], point["backend"], point["version"])
    ready = pricer(*where, point["mode"] == "SOL", tuple(roots))
    batch, length = point["batch"], point["s"]
    tokens = point.get("x", batch)
    query = Query(
        tokens=batch if kind_of(point) == "MlaBmm" else tokens,
        logits=tokens,
        batch=batch,
        new=length,
        cached=point["prefix"],
        kv_len=length,
    )
    (priced,) = price_entries(ready, lower(ready, [record(point["op"])]), query)
    return priced


def check_points(points: Sequence[dict[str, Any]], roots: Sequence[str] = ()) -> None:
    """Every point has its latency, or no data where an error is recorded."""
    wrong = []
    for point in points:
        try:
            priced = price(point, roots)
        except MissingPerfDataError as error:
            if point["ms"] is not None:
                wrong.append(f"{point}: {error}")
            continue
        if point["ms"] is None:
            assert point["error"] in ERRORS
            wrong.append(f"{point}: priced at {priced}")
            continue
        wrong += differences([priced.ms], [point["ms"]], lambda _, p=point: p)
    assert not wrong, (len(wrong), wrong[:3])
