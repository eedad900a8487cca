"""The reference's own decode steps per second; run with its interpreter."""

from __future__ import annotations

import json
import random
import time

from aisimulate_core.sdk import RustForwardPassPerfModel


MODELS = [
    RustForwardPassPerfModel.best_available(
        {
            "model": "Qwen/Qwen3-32B-FP8",
            "system": "h200_sxm",
            "backend": "trtllm",
            "worker_type": "aggregated",
            "tp": tp,
        }
    )
    for tp in (1, 2, 4, 8)
]


def rate(rows: int, length: int, count: int = 20000) -> float:
    """Distinct decode steps per CPU second, uniform in rows and KV length."""
    draw = random.Random(0)
    queries = [
        (draw.choice(MODELS), b, b * draw.randint(2, length))
        for b in (draw.randint(1, rows) for _ in range(count))
    ]
    start = time.process_time()
    for model, b, kv in queries:
        model.predict_decode_latency_total(b, kv)
    return count / (time.process_time() - start)


print(
    json.dumps(
        {
            f"{b}x{s}": rate(b, s)
            for b, s in ((64, 2048), (128, 4096), (512, 8192), (512, 32768))
        }
    )
)
