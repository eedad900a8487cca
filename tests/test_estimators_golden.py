"""Every golden step and operation, on the batched, the scalar and the breakdown path."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from op_level_cases import Group, built_cases, grouped, stacked
from op_level_checks import (
    check_batched_iterations,
    check_batched_steps,
    check_breakdowns,
    check_operations,
    check_refusals,
    check_scalar_steps,
)


PARTS = sorted({(case["model"], case["system"]) for case in built_cases()})


def part_id(part: tuple[str, str]) -> str:
    return "-".join(part).split("/")[1]


@pytest.fixture(scope="module", params=PARTS, ids=part_id)
def groups(request: pytest.FixtureRequest) -> list[Group]:
    cases = [
        case
        for case in built_cases()
        if (case["model"], case["system"]) == request.param
    ]
    return [stacked(group) for group in grouped(cases)]


def every(groups: list[Group], check: Callable[[Group], None]) -> None:
    assert groups
    for group in groups:
        if group.rows("prefill"):
            check(group)


def test_layouts_that_the_model_refuses_carry_their_reason(groups: list[Group]) -> None:
    for group in groups:
        check_refusals(group)


def test_batched_steps_equal_the_figures(groups: list[Group]) -> None:
    every(groups, check_batched_steps)


def test_batched_iterations_equal_the_figures(groups: list[Group]) -> None:
    every(groups, check_batched_iterations)


def test_scalar_steps_equal_the_figures(groups: list[Group]) -> None:
    every(groups, check_scalar_steps)


def test_every_operation_equals_the_figures(groups: list[Group]) -> None:
    every(groups, check_operations)


def test_breakdowns_name_and_price_every_operation(groups: list[Group]) -> None:
    every(groups, check_breakdowns)
