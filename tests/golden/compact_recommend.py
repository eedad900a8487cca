"""Write the committed copy of the recommendation figures from the full set.

Run from the checkout: python tests/golden/compact_recommend.py FULL_GOLDEN_FOLDER
"""

import gzip
import json
import sys
from pathlib import Path


PATTERNS = (
    "grid_*",
    "estimates",
    "sweep_*",
    "load_*",
    "exp_*",
    "schema_*",
    "cli_errors",
    "replay_*",
)


def main(full: Path) -> None:
    folder = Path(__file__).parent / "recommend"
    folder.mkdir(exist_ok=True)
    for pattern in PATTERNS:
        for source in sorted((full / "recommend").glob(f"{pattern}.json")):
            text = json.dumps(json.loads(source.read_text()), separators=(",", ":"))
            target = folder / f"{source.name}.gz"
            target.write_bytes(gzip.compress(text.encode(), mtime=0))
    (folder / "configs").mkdir(exist_ok=True)
    for source in sorted((full / "recommend" / "configs").glob("*.yaml")):
        (folder / "configs" / source.name).write_text(source.read_text())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
