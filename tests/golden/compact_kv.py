"""Write the committed copy of the memory figures from the full set.

Kept: every case of the families that are built, the first of each other family.
Run from the checkout: python tests/golden/compact_kv.py FULL_GOLDEN_FOLDER
"""

import gzip
import json
import sys
from pathlib import Path
from typing import Any


NAMES = (
    "capacity_cases",
    "kv_bytes_curves",
    "scheduler_blocks",
    "sglang_mem_fraction",
    "static_memory",
    "sweeper_tokens",
)
BUILT = ("LLAMA", "MOE", "DEEPSEEK", "KIMIK25")


def main(full: Path) -> None:
    facts = json.loads((full / "kv/model_facts.json").read_text())["models"]
    families = {row["model"]: row["family"] for row in facts}
    folder = Path(__file__).parent / "kv"
    folder.mkdir(exist_ok=True)
    for name in NAMES:
        figures = json.loads((full / f"kv/{name}.json").read_text())
        if "cases" in figures:
            figures["cases"] = _kept(figures["cases"], families)
        text = json.dumps(figures, separators=(",", ":"))
        target = folder / f"{name}.json.gz"
        target.write_bytes(gzip.compress(text.encode(), mtime=0))


def _kept(cases: list[Any], families: dict[str, str]) -> list[Any]:
    seen: set[str] = set()
    kept = []
    for case in cases:
        family = families.get(case.get("model") or case["input"]["model_path"], "")
        if family in ("", *BUILT) or family not in seen:
            kept.append(case)
        seen.add(family)
    return kept


if __name__ == "__main__":
    main(Path(sys.argv[1]))
