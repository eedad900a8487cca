"""Pass prices of the scalar estimator, as the oracle and the table tests use them."""

from __future__ import annotations

from typing import Any

from oracle.replay_timing import Timing, nanoseconds

from aisim_jax.replay import Role


class ScalarTiming(Timing):
    """Prices of a role's estimator, asked one at a time."""

    def __init__(self, role: Role) -> None:
        assert role.prices is not None
        self._batch, self._lane = role.prices.batch, role.prices.lane
        self._known: dict[tuple[int, ...], float] = {}

    def prefill_ms(self, n: int, mean_isl: int, mean_prefix: int) -> float:
        key = (n, mean_isl, mean_prefix)
        if key not in self._known:
            self._batch.ensure(n * (mean_isl - mean_prefix), 1, n)
            steps = self._batch.scalar(self._lane)
            self._known[key] = steps.prefill_ms(n, mean_isl, mean_prefix)
        return self._known[key]

    def decode_ms(self, n: int, total: int, mean: int, capacity: int) -> float:
        rows = n * (self._batch.nextn + 1)
        if (rows, mean) not in self._known:
            self._batch.ensure(1, rows, 1)
            steps = self._batch.scalar(self._lane)
            self._known[rows, mean] = steps.decode_ms(rows, mean)
        return self._known[rows, mean]

    def prefill_ns(self, n: int, isl: int, prefix: int) -> int:
        """Whole ns of n prompts."""
        return nanoseconds(self.prefill_ms(n, isl, prefix) / 1000.0)

    def decode_ns(self, n: int, length: int) -> int:
        """Whole ns of one token for n sequences of `length` tokens."""
        return nanoseconds(self.decode_ms(n, n * length, length, 0) / 1000.0)


def prediction(worker: dict[str, Any] | None = None, **engine: Any) -> dict[str, Any]:
    """An aggregated prediction of Qwen3-32B-FP8 on H200 with some settings changed."""
    settings = {"model": "Qwen/Qwen3-32B-FP8", "hardware": "h200_sxm", **engine}
    settings.setdefault("workers", {"aggregated": worker or {}})
    return {"engine": settings}
