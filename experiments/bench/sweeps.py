"""Speed of whole sweeps, warm, on one core, and of a million grid points.

python experiments/bench/sweeps.py [--reference-command AICONFIGURATOR] [--json FILE]

With the reference's command each case is also run through it in the same run (its whole
process: it has no warm state to reuse), else ratios are left out.
"""

from __future__ import annotations

import argparse
import resource
from functools import partial

from timing import Row, command_seconds, one_core, report, seconds


CASES = {
    "dense Qwen3-32B-FP8, h200_sxm, trtllm, 75 targets": {
        "models": "Qwen/Qwen3-32B-FP8",
        "systems": "h200_sxm",
        "backends": "trtllm",
        "gpus": 8,
        "isl": 4000,
        "osl": 1000,
        "ttft_ms": 2000.0,
        "tpot_ms": 50.0,
    },
    "MoE Qwen3-30B-A3B, h200_sxm, sglang": {
        "models": "Qwen/Qwen3-30B-A3B",
        "systems": "h200_sxm",
        "backends": "sglang",
        "gpus": 8,
        "isl": 2048,
        "osl": 512,
        "ttft_ms": 1000.0,
        "tpot_ms": 25.0,
    },
    "Llama-3.1-8B, h100_sxm, all three engines": {
        "models": "meta-llama/Meta-Llama-3.1-8B",
        "systems": "h100_sxm",
        "backends": "auto",
        "gpus": 4,
        "isl": 2000,
        "osl": 500,
        "ttft_ms": 1000.0,
        "tpot_ms": 20.0,
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reference-command")
    parser.add_argument("--json")
    options = parser.parse_args()
    one_core()
    rows = [
        *(
            row
            for name, case in CASES.items()
            for row in whole_sweep(name, case, options.reference_command)
        ),
        million_points(),
        peak_memory(),
    ]
    report("sweeps, one core", rows, options.json)


def whole_sweep(name: str, case: dict, command: str | None) -> list[Row]:
    """Aggregated and disaggregated, frontier and top 5, both modes of truth."""
    from aisim_jax.recommend import sweep

    reference = None
    if command is not None:
        reference = command_seconds(_reference_words(command, case))[1]
    out = []
    for mode in ("compat", "complete"):
        first, best = seconds(partial(sweep, **case, mode=mode), 7)
        points = sum(sweep(**case, mode=mode).counts.values())
        out.append(
            Row(
                f"{name}, {mode}, {points} points",
                best,
                "s",
                first,
                "reference command, CPU" if reference else "",
                reference / best if reference else None,
            )
        )
    return out


def _reference_words(command: str, case: dict) -> list[str]:
    return [
        *[command, "cli", "default", "--log-level", "ERROR"],
        *["--model-path", case["models"], "--total-gpus", str(case["gpus"])],
        *["--system", case["systems"], "--backend", case["backends"]],
        *["--isl", str(case["isl"]), "--osl", str(case["osl"])],
        *["--ttft", str(case["ttft_ms"]), "--tpot", str(case["tpot_ms"])],
    ]


def million_points() -> Row:
    """10^6 aggregated points: mixed and decode steps priced, then composed."""
    import numpy as np

    from aisim_jax.estimators import compile_batch
    from aisim_jax.models import Layout, load_model, resolve_precision
    from aisim_jax.systems import load_tables

    tables = load_tables("h200_sxm", "trtllm")
    spec = load_model("Qwen/Qwen3-32B-FP8")
    quant = resolve_precision(spec, "trtllm", tables.version, tables.spec.sm_version)
    batch = compile_batch(tables, spec, quant, [Layout(tp=tp) for tp in (1, 2, 4, 8)])
    draw = np.random.default_rng(0)
    count = 10**6
    lane = draw.integers(0, 4, count)
    requests = draw.integers(1, 257, count).astype(float)
    budget = draw.integers(1, 17, count) * 512.0
    isl = draw.integers(500, 6000, count).astype(float)
    osl = draw.integers(50, 1500, count).astype(float)

    def price() -> None:
        batch.mixed_ms(lane, budget, requests, isl, osl, 0.0)
        batch.decode_ms(lane, requests, isl + osl // 2 + 1)

    first, best = seconds(price, 2)
    return Row("10^6 grid points, mixed and decode steps", best, "s", first)


def peak_memory() -> Row:
    """Peak resident memory of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return Row("peak RSS", peak / 2**30, "GiB")


if __name__ == "__main__":
    main()
