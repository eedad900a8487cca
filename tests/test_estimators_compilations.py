"""A sweep compiles few programs, whatever its layouts, queries and their number."""

from __future__ import annotations

import numpy as np

from aisim_jax import models as m
from aisim_jax.estimators import OpLevelBatch, _evaluation, compile_batch
from aisim_jax.systems import load_tables


MOST_PROGRAMS = 12
SIZES = (1, 7, 50, 700, 6000)


def programs() -> int:
    """Compiled step programs so far."""
    return getattr(_evaluation._run, "_cache_size")()  # noqa: B009


def swept_layouts(widest: int) -> list[m.Layout]:
    """Every split of up to `widest` GPUs."""
    sizes = [1 << i for i in range(widest.bit_length())]
    return [
        m.Layout(tp=tp, dp=dp, moe_tp=moe_tp, moe_ep=tp * dp // moe_tp)
        for tp in sizes[:4]
        for dp in sizes
        for moe_tp in sizes[:4]
        if tp * dp <= widest and tp * dp % moe_tp == 0
    ]


def stack(model: str, layouts: list[m.Layout]) -> OpLevelBatch:
    tables, spec = load_tables("h200_sxm", "sglang"), m.load_model(model)
    sm_version = tables.spec.sm_version
    precision = m.resolve_precision(spec, "sglang", tables.version, sm_version)
    return compile_batch(tables, spec, precision, layouts)


def price_everything(batch: OpLevelBatch, seed: int) -> None:
    """All kinds of steps, few and many queries, inside and beyond the grids."""
    random = np.random.default_rng(seed)
    for size in SIZES:
        lane = random.integers(len(batch.layouts), size=size)

        def draw(low: float, high: float, size: int = size) -> np.ndarray:
            return np.floor(np.exp(random.uniform(np.log(low), np.log(high), size)))

        requests, rows, osl = draw(1, 10), draw(1, 1000), draw(1, 500)
        isl, budget = draw(2, 1600), draw(1, 8000)
        batch.prefill_ms(lane, requests, isl, 0)
        batch.decode_ms(lane, rows, draw(1, 100_000))
        batch.mixed_ms(lane, budget, rows, isl, osl, 0)
        batch.scheduled_ms(lane, requests, budget + 10, isl, rows, rows * isl)
        batch.decode_sum_ms(lane, rows, isl, osl, stride=512)


def test_a_sweep_of_many_layouts_compiles_few_programs() -> None:
    layouts = swept_layouts(32)
    assert len(layouts) > 50
    batch = stack("Qwen/Qwen3-30B-A3B", layouts)
    assert batch.errors == (None,) * len(layouts)
    before = programs()
    price_everything(batch, seed=0)
    after_first = programs()
    assert 0 < after_first - before <= MOST_PROGRAMS
    price_everything(batch, seed=1)
    assert programs() - after_first <= 2
    again = programs()
    price_everything(stack("Qwen/Qwen3-30B-A3B", layouts[::-1]), seed=0)
    assert programs() == again
