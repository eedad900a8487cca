"""Operation-level figures, grouped into stacks: one model, system, engine and mode."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from goldens import load_golden

from aisim_jax.estimators import OpLevelBatch, compile_batch
from aisim_jax.estimators._scalar import ScalarSteps
from aisim_jax.kernels import planned_work
from aisim_jax.models import (
    BUILT_FAMILIES,
    Layout,
    ModelSpec,
    load_model,
    resolve_precision,
)
from aisim_jax.systems import PerfTables, load_tables


RTOL = 1e-6  # of figures that keep nine digits
BUILT_MODES = ("SILICON", "SOL", "HYBRID")
FILES = (
    "op_level/deepseek_v3.json",
    "op_level/llama31_70b_fp8.json",
    "op_level/llama31_8b.json",
    "op_level/mixtral_8x7b.json",
    "op_level/modes.json",
    "op_level/qwen3_235b_fp8.json",
    "op_level/qwen3_30b_a3b.json",
    "op_level/qwen3_32b_fp8.json",
    "op_level_breadth/context_parallel.json",
    "op_level_breadth/deepseek_bw.json",
)
SYSTEMS = ("b200_sxm", "h100_sxm", "h200_sxm")
WINDOWED = ("GptOssForCausalLM",)  # two attention operations per phase: not priced
GROUPED_BY = ("model", "system", "backend", "backend_version")
# Stacks have at least so many lanes and cover so many tokens (more than any figure
# asks for), so that they share compiled shapes.
LANES, MOST_CONTEXT, MOST_ROWS = 9, 100_000, 10_000


@dataclass(frozen=True, eq=False)
class Group:
    """Cases of one stack; case i is lane i."""

    cases: tuple[dict[str, Any], ...]
    batch: OpLevelBatch

    def rows(self, kind: str) -> list[tuple[int, list[Any]]]:
        """(lane, row) of every case."""
        return [
            (i, row) for i, case in enumerate(self.cases) for row in case.get(kind, ())
        ]

    def columns(self, kind: str, counts: int) -> np.ndarray:
        """Lanes and the leading counts of every row: arrays [1 + counts, rows]."""
        return np.array([(i, *row[:counts]) for i, row in self.rows(kind)], float).T


class PlainPath:
    """The scalar calls of one lane, with the arguments of the batched ones."""

    def __init__(self, batch: OpLevelBatch, lane: int) -> None:
        self.rows = batch.nextn + 1
        self.steps = ScalarSteps(
            batch.host, batch.phases, lane, analytic=batch.pricer.analytic
        )

    def prefill_ms(self, batch: int, isl: int, prefix: int) -> float:
        return self.steps.prefill_ms(batch, isl, prefix)

    def decode_ms(self, requests: int, kv_len: int) -> float:
        return self.steps.decode_ms(requests * self.rows, kv_len)

    def mixed_parts_ms(
        self, context: int, requests: int, isl: int, osl: int, prefix: int
    ) -> tuple[float, float, float]:
        rows = requests * self.rows
        work = planned_work(np, context, rows, isl, osl, prefix)
        return self.steps.mixed_parts_ms(work)

    def mixed_ms(self, *counts: int) -> float:
        return sum(self.mixed_parts_ms(*counts))


def is_built(case: dict[str, Any]) -> bool:
    """Whether the case is of a family, a mode and a parallelism that is priced."""
    mode = case["overrides"].get("database_mode", "SILICON")
    unbuilt = set(case["overrides"]) - {"database_mode"}
    spec = load_model(case["model"])
    return (
        spec.family in BUILT_FAMILIES
        and spec.architecture not in WINDOWED
        and mode in BUILT_MODES
        and case["parallel"].get("dcp", 1) == 1
        and not unbuilt
    )


@cache
def built_cases(files: tuple[str, ...] = FILES) -> list[dict[str, Any]]:
    """Built cases of all files; of the broader set, those without draft tokens."""
    return [
        case
        for name in files
        for case in load_golden(name)["cases"]
        if case["system"] in SYSTEMS
        and is_built(case)
        and (name.startswith("op_level/") or not case["parallel"].get("nextn", 0))
    ]


def grouped(cases: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Cases that one stack can hold, together."""
    groups: dict[tuple, list] = {}
    for case in cases:
        key = tuple(case[name] for name in GROUPED_BY)
        mode = case["overrides"].get("database_mode", "SILICON")
        key += (mode == "SOL", case["parallel"].get("nextn", 0))
        groups.setdefault(key, []).append(case)
    return list(groups.values())


def stacked(cases: Sequence[dict[str, Any]], roots: Sequence[str] = ()) -> Group:
    """Compile every layout of a group at once."""
    first = cases[0]
    version = first["backend_version"]
    tables = load_tables(first["system"], first["backend"], version, roots)
    batch = compiled(
        tables,
        load_model(first["model"]),
        [layout_of(case) for case in cases],
        nextn=first["parallel"].get("nextn", 0),
        analytic=first["overrides"].get("database_mode") == "SOL",
    )
    return Group(tuple(cases), batch)


def compiled(
    tables: PerfTables,
    spec: ModelSpec,
    layouts: Sequence[Layout],
    *,
    nextn: int = 0,
    analytic: bool = False,
) -> OpLevelBatch:
    """A stack in the precision of the checkpoint, of the shape that all tests share."""
    precision = resolve_precision(
        spec, tables.backend, tables.version, tables.spec.sm_version
    )
    filled = [*layouts, *[layouts[-1]] * (LANES - len(layouts))]
    batch = compile_batch(
        tables, spec, precision, filled, nextn=nextn, analytic=analytic
    )
    batch.ensure(MOST_CONTEXT, MOST_ROWS, 1)
    return batch


def layout_of(case: dict[str, Any]) -> Layout:
    """Parallel sizes of a case."""
    return Layout(**{k: v for k, v in case["parallel"].items() if k != "nextn"})


def differences(
    got: Sequence[float] | np.ndarray,
    want: Sequence[float | None],
    describe: Callable[[int], Any],
    rtol: float = RTOL,
) -> list[str]:
    """Figures that differ by more than `rtol`, in words; None wants NaN."""
    out = []
    for i, (have, figure) in enumerate(zip(got, want, strict=True)):
        if figure is None:
            right = math.isnan(have)
        else:
            right = abs(have - figure) <= rtol * abs(figure)
        if not right:
            out.append(f"{describe(i)}: {have} instead of {figure}")
    return out
