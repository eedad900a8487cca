"""Write the committed copy of the operation-level figures from the full set.

Kept: every case with two prefills, two decodes, one mixed step and one iteration, other
ones from case to case; every single operation; the consumers' calls of the
operation-level estimator.
Run from the checkout: python tests/golden/compact_op_level.py FULL_GOLDEN_FOLDER
"""

import gzip
import json
import sys
from pathlib import Path
from typing import Any


STEPS = (
    "op_level/core012_dense",
    "op_level/core012_mla",
    "op_level/core012_moe",
    "op_level/deepseek_v3",
    "op_level/llama31_70b_fp8",
    "op_level/llama31_8b",
    "op_level/mixtral_8x7b",
    "op_level/modes",
    "op_level/qwen3_235b_fp8",
    "op_level/qwen3_30b_a3b",
    "op_level/qwen3_32b_fp8",
    "op_level_breadth/context_parallel",
    "op_level_breadth/deepseek_bw",
)
SINGLE = ("op_level/core012_single_ops", "op_level/single_ops")
CALLS = ("op_level", "attention_dp", "construction")
ROWS = {"prefill": 2, "decode": 2, "mixed": 1, "fpm": 1}


def main(full: Path) -> None:
    for name in STEPS:
        figures = json.loads((full / f"{name}.json").read_text())
        for index, case in enumerate(figures["cases"]):
            for kind, count in ROWS.items():
                if kind in case:
                    case[kind] = _kept(case[kind], index * count, count)
        _write(name, figures)
    for name in SINGLE:
        _write(name, json.loads((full / f"{name}.json").read_text()))
    calls = json.loads((full / "onboard/consumer-calls.json").read_text())
    _write("onboard/consumer-calls", {name: calls[name] for name in CALLS})


def _kept(rows: list[Any], start: int, count: int) -> list[Any]:
    """`count` neighbours from position `start` on, around the end."""
    places = {(start + i) % len(rows) for i in range(count)} if rows else set()
    return [rows[place] for place in sorted(places)]


def _write(name: str, figures: Any) -> None:
    target = Path(__file__).parent / f"{name}.json.gz"
    target.parent.mkdir(exist_ok=True)
    text = json.dumps(figures, separators=(",", ":"))
    target.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
