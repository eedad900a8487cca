"""One-axis tables: exact at keys, linear between, scaled by speed of light beyond."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """Measured keys (ascending) and latencies, ms, of one curve."""

    keys: Float[np.ndarray, " pts"]
    latency_ms: Float[np.ndarray, " pts"]

    def at(self, query, sol, end_sol) -> Float[np.ndarray, " n"]:
        """Latency at `query`; beyond an end SOL(query) / (SOL(end) / latency(end))."""
        query = np.asarray(query, np.float64)
        out = np.interp(query, self.keys, self.latency_ms)
        below, above = query < self.keys[0], query > self.keys[-1]
        if below.any():
            out = np.where(below, sol / (end_sol[0] / self.latency_ms[0]), out)
        if above.any():
            out = np.where(above, sol / (end_sol[1] / self.latency_ms[-1]), out)
        return out

    def origin(self, query: float) -> str:
        """measured, interpolated or extrapolated."""
        if query < self.keys[0] or query > self.keys[-1]:
            return "extrapolated"
        return "measured" if (self.keys == query).any() else "interpolated"


def axis_of(keys: np.ndarray, latency_ms: np.ndarray) -> Axis:
    """The measured part of a dense row."""
    valid = ~np.isnan(latency_ms)
    return Axis(keys[valid].astype(np.float64), latency_ms[valid])
