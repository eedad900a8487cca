"""Single operations equal the recorded figures, and say where a figure comes from."""

from __future__ import annotations

import pytest
from op_level_points import check_points, kind_of, price, served_points


POINTS = served_points("op_level/single_ops.json")
KINDS = sorted({kind_of(point) for point in POINTS})
ANALYTIC_SOURCES = ("sol", "empirical")


@pytest.mark.parametrize("kind", KINDS)
def test_single_operations_equal_the_figures(kind: str) -> None:
    check_points([point for point in POINTS if kind_of(point) == kind])


def test_formulas_are_analytic_and_tables_are_not() -> None:
    for point in POINTS:
        if point["ms"] is None:
            continue
        priced = price(point)
        if point["source"] in ANALYTIC_SOURCES:
            assert priced.origin == "analytic", point
        elif priced.ms > 0:
            assert priced.origin in ("measured", "interpolated", "extrapolated"), point
