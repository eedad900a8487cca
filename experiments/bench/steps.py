"""Speed of step prices: batched decode steps, scalar calls, compiled layouts.

python experiments/bench/steps.py [--reference-python PYTHON] [--json FILE]

The baseline is the reference's engine (one call per step through its Python boundary)
where its interpreter is given, else this package's operation-by-operation path.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from itertools import product

from timing import Row, one_core, reference_json, report, seconds


MIXES = ((64, 2048), (128, 4096), (512, 8192), (512, 32768))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reference-python")
    parser.add_argument("--json")
    options = parser.parse_args()
    one_core()
    reference = reference_json(options.reference_python, "reference_steps.py")
    rows = [
        *batched_steps(reference),
        *scalar_calls(),
        *compiled_layouts(),
    ]
    report("steps, one core", rows, options.json)


def _batch():
    from aisim_jax.estimators import compile_batch
    from aisim_jax.models import Layout, load_model, resolve_precision
    from aisim_jax.systems import load_tables

    tables = load_tables("h200_sxm", "trtllm")
    spec = load_model("Qwen/Qwen3-32B-FP8")
    quant = resolve_precision(spec, "trtllm", tables.version, tables.spec.sm_version)
    layouts = [Layout(tp=tp) for tp in (1, 2, 4, 8)]
    return compile_batch(tables, spec, quant, layouts)


def batched_steps(reference: dict | None) -> list[Row]:
    """Distinct decode steps per second, all rules, four layouts in one stack."""
    import numpy as np

    batch = _batch()
    draw = np.random.default_rng(0)
    count = 1 << 18
    out = []
    for most_rows, longest in MIXES:
        lane = draw.integers(0, 4, count)
        requests = draw.integers(1, most_rows + 1, count).astype(float)
        length = draw.integers(2, longest + 1, count).astype(float)
        first, best = seconds(partial(batch.decode_ms, lane, requests, length))
        plain = _plain_rate(batch, lane, requests, length)
        base, name = (plain, "operation-by-operation path")
        if reference is not None:
            base, name = reference[f"{most_rows}x{longest}"], "reference engine"
        out.append(
            Row(
                f"decode steps/s, rows <= {most_rows}, KV <= {longest}",
                count / best,
                "steps/s",
                first,
                name,
                count / best / base,
            )
        )
    return out


def _plain_rate(batch, lane, requests, length, count: int = 200) -> float:
    from aisim_jax.estimators._breakdown import Query, price_entries

    start = time.process_time()
    for i in range(count):
        entries = batch.lanes[lane[i]].generation
        b = int(requests[i])
        query = Query(b, b, b, new=1, kv_len=int(length[i]))
        price_entries(batch.pricer, entries, query)
    return count / (time.process_time() - start)


def scalar_calls() -> list[Row]:
    """One question at a time through the public estimator."""
    import aisim_jax

    model = aisim_jax.best_available(
        {
            "model": "Qwen/Qwen3-32B-FP8",
            "system": "h200_sxm",
            "backend": "trtllm",
            "worker_type": "aggregated",
            "tp": 4,
        }
    )
    decode = [{"num_decode_requests": 64, "sum_decode_kv_tokens": 128000}]
    cases = {
        "scalar decode, inside the grid": lambda: model.predict_decode_latency_total(
            64, 64 * 2000
        ),
        "scalar decode, beyond the grid": lambda: model.predict_decode_latency_total(
            400, 400 * 6000
        ),
        "scalar prefill": lambda: model.predict_prefill_latency_total(2, 8000, 200),
        "scalar iteration record": lambda: model.estimate_forward_pass_time_ms(decode),
    }
    out = []
    for name, call in cases.items():
        call()

        def many(call=call):
            for _ in range(5000):
                call()

        _, best = seconds(many, repeat=3)
        out.append(Row(name, best / 5000 * 1e6, "us"))
    return out


def compiled_layouts() -> list[Row]:
    """Layouts compiled per minute: the 30B MoE model on SGLang, 43 layouts at once."""
    from aisim_jax.estimators import compile_batch
    from aisim_jax.models import Layout, load_model, resolve_precision
    from aisim_jax.systems import load_tables

    tables = load_tables("h200_sxm", "sglang")
    spec = load_model("Qwen/Qwen3-30B-A3B")
    quant = resolve_precision(spec, "sglang", tables.version, tables.spec.sm_version)
    sizes = (1, 2, 4, 8)
    layouts = [
        Layout(tp=tp, dp=dp, moe_tp=mtp, moe_ep=ep)
        for tp, dp, mtp, ep in product(sizes, repeat=4)
        if tp * dp == mtp * ep and tp * dp <= 8
    ]
    first, best = seconds(lambda: compile_batch(tables, spec, quant, layouts), 3)
    return [
        Row(
            f"layouts compiled per minute ({len(layouts)} at once)",
            60 * len(layouts) / best,
            "layouts/min",
            first,
        )
    ]


if __name__ == "__main__":
    main()
