"""Write the committed figures about systems: measured rows, lanes, version slots.

Run from the checkout: python tests/golden/compact_systems.py SYSTEMS_TREE LANES_JSON

SYSTEMS_TREE is the unpacked data of the reference. LANES_JSON holds what the installed
reference answers when it compiles a model: {"system|backend|slot|choice": {op kind:
[lane order]} or an error}. Rows are drawn from a version's own files, so that they must
be found unchanged whatever sharing adds.
"""

import gzip
import json
import random
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq


CURRENT = {"sglang": "0.5.14", "trtllm": "1.3.0rc20", "vllm": "0.24.0"}
SYSTEMS = ("b200_sxm", "h100_sxm", "h200_sxm")
COORDINATES = {
    "gemm/gemm_perf": ("gemm_dtype", "m", "n", "k"),
    "attention/context_attention_perf": (
        "kernel_source",
        "attn_dtype",
        "kv_cache_dtype",
        "num_heads",
        "num_key_value_heads",
        "head_dim",
        "window_size",
        "isl",
        "batch_size",
    ),
    "attention/generation_attention_perf": (
        "kernel_source",
        "kv_cache_dtype",
        "num_heads",
        "num_key_value_heads",
        "head_dim",
        "window_size",
        "batch_size",
        "isl",
        "step",
    ),
    "moe/moe_perf": (
        "moe_dtype",
        "kernel_source",
        "distribution",
        "topk",
        "num_experts",
        "hidden_size",
        "inter_size",
        "moe_tp_size",
        "moe_ep_size",
        "num_tokens",
    ),
    "mla/context_mla_perf": (
        "mla_dtype",
        "kv_cache_dtype",
        "num_heads",
        "isl",
        "batch_size",
    ),
    "mla/mla_generation_module_perf": (
        "kv_cache_dtype",
        "gemm_type",
        "num_heads",
        "batch_size",
        "isl",
        "step",
    ),
    "mla_bmm/mla_bmm_perf": ("bmm_dtype", "op_name", "num_heads", "num_tokens"),
    "quantize/scale_matrix_perf": ("m", "k"),
}


def main(tree: Path, lanes: Path) -> None:
    folder = Path(__file__).parent / "systems"
    folder.mkdir(exist_ok=True)
    _write(folder / "measured_rows.json.gz", _rows(tree))
    answers = {
        case: {"error": answer.split(":")[0]} if isinstance(answer, str) else answer
        for case, answer in json.loads(lanes.read_text()).items()
    }
    _write(folder / "lane_orders.json.gz", answers)


def _rows(tree: Path) -> list[dict[str, Any]]:
    draw = random.Random(5)
    kept = []
    for system in SYSTEMS:
        for backend, version in CURRENT.items():
            for table, names in COORDINATES.items():
                family, name = table.split("/")
                path = tree / "data" / system / family / backend / version
                if not (path / f"{name}.parquet").is_file():
                    continue
                first: dict[tuple, float] = {}
                columns = pq.read_table(path / f"{name}.parquet").to_pydict()
                blank = [0] * len(columns["latency"])
                keys = zip(*(columns.get(n, blank) for n in names), strict=True)
                for key, latency in zip(keys, columns["latency"], strict=True):
                    first.setdefault(key, latency)
                for key in draw.sample(sorted(first), min(6, len(first))):
                    row = {
                        "system": system,
                        "backend": backend,
                        "table": name,
                        **dict(zip(names, key, strict=True)),
                        "latency": first[key],
                    }
                    kept.append(row)
    return kept


def _write(path: Path, figures: Any) -> None:
    text = json.dumps(figures, separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
