"""Step prices in plain Python, rounded to nanoseconds by exact fractions."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


def nanoseconds(seconds: float) -> int:
    """Nearest whole nanosecond of a float, ties to even."""
    return round(Fraction(seconds) * 10**9)


def seconds(raw_ms: float, speedup: float = 1.0) -> float:
    """A price in quantised seconds; negative prices count as 0, speedup 0 as none."""
    if raw_ms <= 0:
        return 0.0
    value = nanoseconds(raw_ms / 1000.0) / 1e9
    if speedup > 0 and value > 0:
        value = nanoseconds(value / speedup) / 1e9
    return nanoseconds(value * 1000.0 / 1000.0) / 1e9


class Timing:
    """Two questions in raw ms; the speedups scale the quantised answers."""

    speedup: float = 1.0
    decode_speedup: float = 1.0

    def prefill_ms(self, n: int, mean_isl: int, mean_prefix: int) -> float:
        raise NotImplementedError

    def decode_ms(self, n: int, total: int, mean: int, capacity: int) -> float:
        raise NotImplementedError

    def prefill_s(self, n: int, sum_isl: int, sum_prefix: int) -> float:
        """Quantised price of a pass that computes prompt tokens of n requests."""
        if n == 0 or sum_isl // n <= sum_prefix // n:
            return 0.0
        return seconds(self.prefill_ms(n, sum_isl // n, sum_prefix // n), self.speedup)

    def decode_s(self, n: int, total: int, capacity: int) -> float:
        """Quantised price of one token for n requests of `total` tokens in all."""
        if n == 0:
            return 0.0
        scale = self.speedup * self.decode_speedup
        return seconds(self.decode_ms(n, total, total // n, capacity), scale)


@dataclass(frozen=True)
class Fixed(Timing):
    prefill: float
    decode: float
    speedup: float = 1.0
    decode_speedup: float = 1.0

    def prefill_ms(self, n, mean_isl, mean_prefix):
        return self.prefill

    def decode_ms(self, n, total, mean, capacity):
        return self.decode


@dataclass(frozen=True)
class Polynomial(Timing):
    speedup: float = 1.0
    decode_speedup: float = 1.0

    def prefill_ms(self, n, mean_isl, mean_prefix):
        tokens = n * (mean_isl - mean_prefix)
        return 4.209989e-7 * tokens**2 + 1.518344e-2 * tokens + 16.50142

    def decode_ms(self, n, total, mean, capacity):
        used = min(total / capacity, 1.0)
        return max(1.0, -25.74 * used**2 + 54.01 * used + 5.74)
