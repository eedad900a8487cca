"""What the replay benchmark runs: one prediction file per lane, and published costs.

Published: requests per second and core of the reference's compiled engine, without its
start-up. Where a published range belongs to a row its upper end is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


ISL_TOKENS = 1000
MODEL = "Qwen/Qwen3-32B-FP8"
SYSTEM = "h200_sxm"
BLOCKS = 16384  # of 64 tokens: no pressure unless a case says so


@dataclass(frozen=True)
class Case:
    """Lanes that are replayed in one call.

    target_s: what the whole call should take at most. published_per_s: requests per
    second of the reference, None where none is published. reference: whether its
    command is run too where it is given.
    """

    what: str
    predictions: Sequence[dict[str, Any]]
    target_s: float | None = None
    published_per_s: float | None = None
    reference: bool = True


def cases() -> list[Case]:
    """Every row, cheapest first."""
    return [
        *closed_loops(),
        *open_loops(),
        *tight_pools(),
        *estimated_prices(),
        *other_engines(),
    ]


def closed_loops() -> list[Case]:
    every = range(1, 101)
    some = range(8, 65)
    return [
        Case("closed loop 64", [_closed(64, 1000)], 0.005, 40_000),
        Case("closed loop 64", [_closed(64, 10_000)], None, 40_000),
        Case("closed loop 64", [_closed(64, 100_000)], 1.0, 37_000),
        Case("closed loop 64, OSL 1000", [_closed(64, 2000, osl=1000)], None, 5000),
        Case("closed loop 8..64", [_closed(c, 1000) for c in some], None, 40_000),
        Case(
            "closed loop 8..64, OSL 1000",
            [_closed(c, 1000, osl=1000) for c in some],
            None,
            5000,
        ),
        Case("closed loop 1..100", [_closed(c, 1000) for c in every], 0.5, 35_000),
    ]


def open_loops() -> list[Case]:
    rates = _spaced(2, 20, 100)
    slow = _spaced(0.2, 2, 19)
    wide = {"max_sequences": 256}
    return [
        Case("Poisson 2/s", [_poisson(2, 3000)], None, 11_000),
        Case("Poisson 10/s", [_poisson(10, 100_000)], 2.5, 28_700),
        Case("Poisson 2..20/s", [_poisson(r, 1000) for r in rates], 1.5, 31_000),
        Case(
            "Poisson 0.2..2/s, OSL 1000",
            [_poisson(r, 1000, osl=1000) for r in slow],
            None,
            2900,
        ),
        Case(
            "Poisson 2..20/s, 256 slots, few used",
            [_poisson(r, 1000, scheduler=wide) for r in rates[::5]],
            None,
            31_000,
        ),
    ]


def tight_pools() -> list[Case]:
    """A pool of half of what 64 requests need at their longest."""
    pool = {"block_size": 16, "capacity": {"type": "fixed", "blocks": 2816}}
    off = {**pool, "prefix_caching": False}
    return [
        Case(
            f"tight pool, OSL 400, prefix cache {word}",
            [_closed(64, 1000, osl=400, kv_cache=cache)],
            None,
            11_000,
        )
        for word, cache in (("off", off), ("on", pool))
    ]


def estimated_prices() -> list[Case]:
    """100 loads of one deployment whose passes are priced from measured kernels."""
    measured = {"type": "default"}
    sweep = [_closed(c, 1000, timing=measured) for c in range(1, 101)]
    apart = [_with_pricing(p, "per_request") for p in sweep]
    return [
        # 9.1 s for 100 x 1000 requests through the reference's in-process command.
        Case("op-level prices, closed loop 1..100", sweep, None, 100_000 / 9.1),
        Case(
            "op-level, pricing per_request, 1..100",
            apart,
            None,
            100_000 / 9.1,
            reference=False,
        ),
    ]


def other_engines() -> list[Case]:
    return [
        Case("TensorRT-LLM, closed loop 64", [_closed(64, 1000, backend="trtllm")]),
        Case("SGLang, closed loop 64", [_closed(64, 1000, backend="sglang")]),
        Case("SGLang, Poisson 10/s", [_poisson(10, 1000, backend="sglang")]),
        Case("prefix of 512 shared, closed loop 64", [_closed(64, 1000, shared=512)]),
        Case("1 prefill + 1 decode, closed loop 64", [_split(_closed(64, 1000))]),
        Case("1 prefill + 1 decode, Poisson 10/s", [_split(_poisson(10, 1000))]),
    ]


def with_requests(prediction: dict[str, Any], count: int) -> dict[str, Any]:
    """The same prediction with another number of requests."""
    traffic = {**prediction["traffic"], "stop": {"requests": count}}
    return {**prediction, "traffic": traffic}


def _closed(concurrency: int, count: int, **more: Any) -> dict[str, Any]:
    load = {"type": "concurrency", "concurrency": concurrency}
    return _prediction(load, count, **more)


def _poisson(per_second: float, count: int, **more: Any) -> dict[str, Any]:
    load = {"type": "poisson", "requests_per_second": per_second, "seed": 42}
    return _prediction(load, count, **more)


def _prediction(
    load: dict[str, Any],
    count: int,
    *,
    osl: int = 100,
    shared: int = 0,
    backend: str = "vllm",
    timing: dict[str, Any] | None = None,
    scheduler: dict[str, Any] | None = None,
    kv_cache: dict[str, Any] | None = None,
) -> dict[str, Any]:
    source = {"type": "synthetic", "input_tokens": ISL_TOKENS, "output_tokens": osl}
    if shared:
        source["cached_prefix_tokens"] = shared
    room = {"block_size": 64, "capacity": {"type": "fixed", "blocks": BLOCKS}}
    worker = {
        "parallelism": {"tensor": 2},
        "scheduler": scheduler or {"max_sequences": 128},
        "kv_cache": kv_cache or room,
        "timing": timing or {"type": "polynomial"},
    }
    return {
        "traffic": {"source": source, "load": load, "stop": {"requests": count}},
        "engine": {
            "mode": "aggregated",
            "model": MODEL,
            "hardware": SYSTEM,
            "backend": backend,
            "context_length": 8192,
            "workers": {"aggregated": worker},
        },
    }


def _split(prediction: dict[str, Any]) -> dict[str, Any]:
    engine = prediction["engine"]
    worker = engine["workers"]["aggregated"]
    one_at_a_time = {**worker, "scheduler": {"max_sequences": 1}}
    workers = {"prefill": one_at_a_time, "decode": worker}
    return {
        **prediction,
        "engine": {**engine, "mode": "disaggregated", "workers": workers},
    }


def _with_pricing(prediction: dict[str, Any], pricing: str) -> dict[str, Any]:
    return {**prediction, "engine": {**prediction["engine"], "pricing": pricing}}


def _spaced(low: float, high: float, count: int) -> list[float]:
    return [low + (high - low) * i / (count - 1) for i in range(count)]
