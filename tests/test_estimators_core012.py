"""The same estimator over the tables of an installed aiconfigurator-core 0.12.0."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from op_level_cases import SYSTEMS, Group, built_cases, grouped, stacked
from op_level_checks import (
    check_batched_iterations,
    check_batched_steps,
    check_breakdowns,
    check_operations,
    check_refusals,
    check_scalar_steps,
)
from op_level_points import check_points, served_points

from aisim_jax import best_available
from aisim_jax._errors import MeasurementWarning
from aisim_jax.systems import import_tables


pytestmark = [
    pytest.mark.needs_core012,
    pytest.mark.filterwarnings("ignore::aisim_jax._errors.MeasurementWarning"),
]
FILES = (
    "op_level/core012_dense.json",
    "op_level/core012_mla.json",
    "op_level/core012_moe.json",
)
BACKENDS = ("sglang", "trtllm", "vllm")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A data root with everything that the package measured on the three systems."""
    folder = tmp_path_factory.mktemp("core012")
    for system in SYSTEMS:
        for backend in BACKENDS:
            import_tables("aiconfigurator-core", system, backend, None, folder)
    return str(folder)


@pytest.fixture
def groups(root: str) -> Iterator[Group]:
    """Stacks one by one: together they would need gigabytes."""
    return (stacked(cases, (root,)) for cases in grouped(built_cases(FILES)))


def test_every_step_and_operation_equals_the_figures(groups: Iterator[Group]) -> None:
    count = 0
    for group in groups:
        check_refusals(group)
        check_batched_steps(group)
        check_batched_iterations(group)
        check_scalar_steps(group)
        check_operations(group)
        check_breakdowns(group)
        count += len(group.cases)
    assert count == len(built_cases(FILES)) > 100


def test_single_operations_equal_the_figures(root: str) -> None:
    points = served_points("op_level/core012_single_ops.json")
    assert len(points) > 150
    check_points(points, (root,))


def test_block_scaled_figures_of_vllm_come_with_a_warning(root: str) -> None:
    config = {
        "model": "Qwen/Qwen3-32B-FP8",
        "system": "h200_sxm",
        "backend": "vllm",
        "worker_type": "aggregated",
        "systems_paths": [root],
    }
    with pytest.warns(MeasurementWarning, match="fp8_block"):
        best_available(config)
