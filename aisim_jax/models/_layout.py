"""Parallel layout of one worker (engine instance)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Layout:
    """Parallel sizes of one worker; all positive.

    `gpus` is the one footprint function: ranking, replicas, reports and load sizing
    all use it.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    moe_tp: int = 1
    moe_ep: int = 1
    cp: int = 1

    @property
    def gpus(self) -> int:
        """GPUs of one worker: tp * pp * dp * cp."""
        return self.tp * self.pp * self.dp * self.cp

    @property
    def label(self) -> str:
        """Short name, e.g. tp4pp1dp1etp1ep4; cp is shown when above 1."""
        text = f"tp{self.tp}pp{self.pp}dp{self.dp}etp{self.moe_tp}ep{self.moe_ep}"
        return text + (f"cp{self.cp}" if self.cp > 1 else "")
