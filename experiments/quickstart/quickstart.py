"""Predict a worker, size its memory, sweep a node, and ask what the hardware buys.

Run from anywhere: python experiments/quickstart/quickstart.py [OUTPUT.json]
Prints a table; writes the same figures as JSON when a file is named.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jax
from rich.console import Console
from rich.table import Table

import aisim_jax
from aisim_jax.config import load_config
from aisim_jax.estimators import hardware_surface
from aisim_jax.memory import capacity_report


ISL, OSL, REQUESTS, GPUS = 4000, 500, 64, 8
CONTEXT = ISL + OSL // 2
TB = 1e12


def figures() -> dict[str, float | int | str]:
    """Everything the quick start shows, by name."""
    config = load_config(Path(__file__).with_name("worker.yaml"))
    worker = aisim_jax.best_available(config)
    memory = capacity_report(
        config.model, config.system, config.backend, worker.layout, isl=ISL, osl=OSL
    )
    found = aisim_jax.sweep(
        config.model, config.system, config.backend, gpus=GPUS, isl=ISL, osl=OSL
    )
    chosen = found.chosen
    assert chosen is not None
    with aisim_jax.precision():
        surface = hardware_surface(worker.batch)
        slope = jax.grad(
            lambda rates: surface.at(rates).decode_ms(0, REQUESTS, CONTEXT)
        )
        per_tb_ms = float(TB * slope(surface.reference).mem_bw_bytes_per_s)
    return {
        "prefill of one prompt, ms": worker.predict_prefill_latency_total(1, ISL, 0),
        f"step of {REQUESTS} requests, ms": worker.predict_decode_latency_total(
            REQUESTS, REQUESTS * CONTEXT
        ),
        "the same step per extra TB/s, ms": per_tb_ms,
        "KV cache of one GPU, tokens": memory.tokens,
        "requests that fit at full length": memory.safe_requests,
        f"best on {GPUS} GPUs, serving mode": chosen.serving_mode,
        "its tokens/s/GPU": chosen.cluster_tokens_per_s_per_gpu,
        "its TTFT, ms": chosen.ttft_ms,
        "its TPOT, ms": chosen.tpot_ms,
        "points evaluated": sum(found.counts.values()),
    }


def main() -> None:
    """Print the figures; write them where the command line says."""
    found = figures()
    table = Table("figure", "value")
    for name, value in found.items():
        table.add_row(name, f"{value:,.3f}" if isinstance(value, float) else str(value))
    Console().print(table)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
