"""Write the committed copy of the model figures from the full set.

Kept: operation lists of the built families, one line of facts per distinct case of the
operation-level files, all inferred facts, and resident weights of the built families.
Run from the checkout: python tests/golden/compact_models.py FULL_GOLDEN_FOLDER
"""

import gzip
import json
import sys
from pathlib import Path
from typing import Any


BUILT = ("LLAMA", "MOE", "DEEPSEEK", "KIMIK25")
CASE_FIELDS = (
    "model",
    "system",
    "backend",
    "backend_version",
    "parallel",
    "overrides",
    "quant",
    "context_ops",
    "generation_ops",
    "error",
)


def main(full: Path) -> None:
    facts = json.loads((full / "kv/model_facts.json").read_text())
    families = {row["model"]: row["family"] for row in facts["models"]}
    _write("kv/model_facts.json", facts)

    weights = json.loads((full / "kv/weights_breakdown.json").read_text())
    weights["cases"] = [
        c for c in weights["cases"] if families.get(c["model"]) in BUILT
    ]
    _write("kv/weights_breakdown.json", weights)

    for name in ("op_level/op_lists.json", "op_level_breadth/op_lists.json"):
        lists = json.loads((full / name).read_text())
        lists["specs"] = [
            s for s in lists["specs"] if families.get(s["model"]) in BUILT
        ]
        _write(name, lists)

    _write("models/cases.json", {"cases": _cases(full, families)})


def _cases(full: Path, families: dict[str, str]) -> list[Any]:
    """Distinct cases of the built families, without their rows."""
    distinct: dict[str, Any] = {}
    for folder in ("op_level", "op_level_breadth"):
        for file in sorted((full / folder).glob("*.json")):
            for case in json.loads(file.read_text()).get("cases", ()):
                if families.get(case.get("model")) in BUILT:
                    kept = {k: case[k] for k in CASE_FIELDS if k in case}
                    distinct[json.dumps(kept, sort_keys=True)] = kept
    return list(distinct.values())


def _write(name: str, figures: Any) -> None:
    target = Path(__file__).parent / f"{name}.gz"
    target.parent.mkdir(exist_ok=True)
    text = json.dumps(figures, separators=(",", ":"))
    target.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
