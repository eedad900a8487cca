"""Write the committed sweep that the tests of tables and files are made from.

Run from the checkout: python tests/golden/compact_report.py FULL_GOLDEN_FOLDER
"""

import gzip
import json
import sys
from pathlib import Path


SOURCE = "recommend/sweep_qwen3_32b_fp8_h200_vllm.json"


def main(full: Path) -> None:
    figures = json.loads((full / SOURCE).read_text())
    kept = {name: figures[name] for name in ("inputs", "chosen", "top", "pareto")}
    target = Path(__file__).parent / "report" / "sweep.json.gz"
    target.parent.mkdir(exist_ok=True)
    text = json.dumps(kept, separators=(",", ":"))
    target.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
