"""Write the committed copy of the configuration figures from the full set.

Run from the checkout: python tests/golden/compact_config.py FULL_GOLDEN_FOLDER
"""

import gzip
import json
import sys
from pathlib import Path


NAME = "fpm/config_cases.json"


def main(full: Path) -> None:
    figures = json.loads((full / NAME).read_text())
    target = Path(__file__).parent / f"{NAME}.gz"
    target.parent.mkdir(exist_ok=True)
    text = json.dumps(figures, separators=(",", ":"))
    target.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
