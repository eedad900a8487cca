"""Small systems trees in the layout of the reference's data, written by the tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml


SYSTEM = {
    "data_dir": "data/toy",
    "gpu": {
        "mem_bw": 1_000_000_000_000,
        "mem_bw_empirical_scaling_factor": 0.8,
        "mem_empirical_constant_latency": 3e-6,
        "mem_capacity": 80_000_000_000,
        "bfloat16_tc_flops": 500_000_000_000_000,
        "power": 500,
        "sm_version": 90,
    },
    "node": {
        "num_gpus_per_node": 8,
        "inter_node_bw": 50_000_000_000,
        "intra_node_bw": 450_000_000_000,
        "p2p_latency": 1e-5,
    },
    "misc": {
        "nccl_mem": {1: 0, 2: 10, 4: 20, 8: 20},
        "other_mem": 1000,
        "nccl_version": "2.26.2",
    },
}
VERSIONS = {
    "defaults": {
        "vllm": {"current": "0.24.0", "previous": None},
        "sglang": {"current": "0.5.14", "previous": None},
        "trtllm": {"current": "1.3.0rc20", "previous": None},
    }
}


def write_tree(root: Path) -> Path:
    """An empty tree with one system, "toy"."""
    (root / "data" / "toy").mkdir(parents=True)
    write_yaml(root / "toy.yaml", SYSTEM)
    write_yaml(root / "query_versions.yaml", VERSIONS)
    return root


def write_yaml(path: Path, facts: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(dict(facts)))


def write_rows(
    root: Path, place: str, table: str, rows: Sequence[Mapping[str, Any]]
) -> None:
    """Write rows as data/toy/<place>/<table>.parquet."""
    folder = root / "data" / "toy" / place
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows)), folder / f"{table}.parquet")


def gemm_rows(*points: tuple[int, int, int, float], quant: str = "bfloat16") -> list:
    """Rows (m, n, k, latency in ms)."""
    return [
        {
            "kernel_source": "cublas",
            "gemm_dtype": quant,
            "m": m,
            "n": n,
            "k": k,
            "latency": latency,
        }
        for m, n, k, latency in points
    ]


def attention_row(lane: str, latency: float, **changes: Any) -> dict[str, Any]:
    """One prefill row: 8 heads, 2 KV heads, one sequence of 128 tokens."""
    row = {
        "kernel_source": lane,
        "batch_size": 1,
        "isl": 128,
        "step": 0,
        "num_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "window_size": 0,
        "attn_dtype": "bfloat16",
        "kv_cache_dtype": "bfloat16",
        "latency": latency,
    }
    return row | changes


def moe_row(latency: float, **changes: Any) -> dict[str, Any]:
    """One expert row."""
    row = {
        "kernel_source": "fused",
        "moe_dtype": "bfloat16",
        "distribution": "power_law_1.2",
        "topk": 2,
        "num_experts": 8,
        "hidden_size": 64,
        "inter_size": 128,
        "moe_tp_size": 1,
        "moe_ep_size": 1,
        "num_tokens": 16,
        "latency": latency,
    }
    return row | changes
