"""How benchmarks measure and report: CPU seconds of one process, compile apart.

CPU time is used for work inside this process (it does not see what else runs on the
machine); wall time is given beside it. Ratios are against a baseline that the same run
measured. Results print as a table and are written as JSON when asked.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """One measurement: `value` in `unit`, and its ratio to the named baseline."""

    what: str
    value: float
    unit: str
    first_s: float | None = None
    baseline: str = ""
    ratio: float | None = None


def seconds(function: Callable[[], object], repeat: int = 5) -> tuple[float, float]:
    """(first call, best later call) in CPU seconds; the first includes compilation."""
    start = time.process_time()
    function()
    first = time.process_time() - start
    best = float("inf")
    for _ in range(repeat):
        start = time.process_time()
        function()
        best = min(best, time.process_time() - start)
    return first, best


def command_seconds(words: list[str], env: dict[str, str] | None = None):
    """(wall, CPU, peak bytes) of a command; raises when it fails."""
    start = time.perf_counter()
    process = subprocess.Popen(
        words,
        env={**os.environ, **(env or {})},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    errors = process.stderr.read() if process.stderr else b""
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(words)} failed: {errors.decode()[-400:]}")
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def reference_json(python: str | None, script: str) -> dict | None:
    """Run `script` (a file here) with the reference's interpreter; None without one."""
    if python is None:
        return None
    here = Path(__file__).resolve().parent
    done = subprocess.run(
        [python, "-W", "ignore", str(here / script)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"reference run failed: {done.stderr[-400:]}")
    return json.loads(done.stdout.splitlines()[-1])


def report(title: str, rows: list[Row], path: str | None) -> None:
    """Print the table; write it as JSON where `path` says."""
    machine = {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        **{name: version(name) for name in ("jax", "numpy", "aisim-jax")},
    }
    print(f"{title}  [{', '.join(f'{k} {v}' for k, v in machine.items())}]")
    for row in rows:
        first = "" if row.first_s is None else f"  first call {row.first_s:.2f} s"
        ratio = "" if row.ratio is None else f"  {row.ratio:,.1f}x {row.baseline}"
        print(f"  {row.what:<58} {row.value:>14,.4g} {row.unit:<10}{first}{ratio}")
    if path:
        target = Path(path)
        text = json.dumps({"machine": machine, "rows": [asdict(r) for r in rows]})
        partial = target.with_suffix(".partial")
        partial.write_text(text)
        partial.replace(target)
    sys.stdout.flush()


def one_core() -> None:
    """Pin this process to one core and keep XLA to one thread; call before jax."""
    os.environ["XLA_FLAGS"] = (
        "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    )
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"
