"""Start-up: help, a cold and a warm README sweep, each a fresh process.

python experiments/bench/startup.py [--json FILE]

Cold: an empty compilation cache. Warm: the cache that the cold run left. Wall seconds;
CPU seconds and peak memory beside them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from timing import Row, command_seconds, report


SWEEP = [
    "sweep",
    "--model",
    "Qwen/Qwen3-32B-FP8",
    "--system",
    "h200_sxm",
    "--backend",
    "vllm",
    "--gpus",
    "8",
    "--isl",
    "4000",
    "--osl",
    "500",
    "--ttft",
    "2000",
    "--tpot",
    "30",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json")
    options = parser.parse_args()
    aisim = str(Path(sys.executable).with_name("aisim"))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        env = {"XDG_CACHE_HOME": folder}
        for name, words in (
            ("aisim --help", ["--help"]),
            ("README sweep, cold", SWEEP),
            ("README sweep, warm", SWEEP),
            ("README sweep, warm again", SWEEP),
        ):
            wall, cpu, peak = command_seconds([aisim, *words], env)
            rows.append(Row(f"{name}, wall", wall, "s"))
            rows.append(Row(f"{name}, CPU", cpu, "s"))
            rows.append(Row(f"{name}, peak RSS", peak / 2**30, "GiB"))
    report("start-up", rows, options.json)


if __name__ == "__main__":
    main()
