"""Write the committed copy of some recorded trace replays from the full set.

Run from the checkout, with the full set beside it: python tests/golden/compact_traces.py
"""

import gzip
import json
import sys
from pathlib import Path

import yaml


HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from goldens import FULL  # noqa: E402


NAMES = (
    "p01_conv_prefix_evict",
    "p06_chat_1p1d",
    "p08_conv_trt",
    "p09_chat_sgl",
    "p11_reason_derived",
    "p12_conv_prefix_all_fits",
    "p13_conv_small_pool",
    "o01_llama8b_h100_vllm_chat",
)
KEPT = (
    "trace",
    "config",
    "summary",
    "request_constants",
    "request_columns",
    "requests",
)


def write(target: Path, text: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.compress(text, mtime=0))


def main() -> None:
    source, target = FULL / "traces", HERE / "traces"
    traces = set()
    for name in NAMES:
        case = json.loads((source / "results" / f"{name}.json").read_text())
        case["config"] = yaml.safe_load(
            (source / "results" / f"{name}.yaml").read_text()
        )
        text = json.dumps({key: case[key] for key in KEPT}, separators=(",", ":"))
        write(target / "results" / f"{name}.json.gz", text.encode())
        traces.add(case["trace"])
    for trace in traces:
        write(target / f"{trace}.gz", (source / trace).read_bytes())


if __name__ == "__main__":
    main()
