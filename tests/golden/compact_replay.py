"""Write the committed copy of the recorded replay cases from the full set.

Run from the checkout, with the full set beside it: python tests/golden/compact_replay.py
"""

import gzip
import json
import sys
from pathlib import Path


HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from replay_golden import case_names, full_case  # noqa: E402


# What follows from other figures of the same case, or names a file that is not copied.
LEFT_OUT = {"name", "semantics", "trace", "token_times_note"}
DERIVED = {"ttft_ms", "ttst_ms", "itl_ms", "e2e_latency_ms"}


def compact(case: dict) -> dict:
    """The case without what the comparison does not need."""
    kept = {key: value for key, value in case.items() if key not in LEFT_OUT}
    if kept.get("passes"):
        kept["passes"] = {key: kept["passes"][key] for key in ("columns", "rows")}
    if "requests" in kept and "token_times_ms" in kept:
        columns = kept["request_columns"]
        left = [place for place, name in enumerate(columns) if name not in DERIVED]
        kept["request_columns"] = [columns[place] for place in left]
        kept["requests"] = [[row[place] for place in left] for row in kept["requests"]]
    return kept


def main() -> None:
    cases = {name: compact(full_case(name)) for name in case_names()}
    target = HERE / "replay" / "cases.json.gz"
    target.parent.mkdir(exist_ok=True)
    text = json.dumps(cases, separators=(",", ":"))
    target.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
