"""From an estimator to the prices that engines read, within a bounded region."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..estimators import OpLevelBatch, decode_surface, prefill_surface
from ..kernels.replay import FreeWork, OpLevelSteps, SurfaceDecode, SurfacePrefill
from ._price_tables import decode_table, prefill_table
from ._reach import Reach


SCALAR_CELLS = 1 << 14  # priced one by one in well under 0.1 s
TABLE_CELLS = 1 << 22  # 32 MiB
TABLE_SHARE = 0.25
KEPT_STEPS = 8  # price tables kept per layout


@dataclass(eq=False)
class OpLevelPrices:
    """Prices of one layout of a compiled batch.

    apart: requests are priced one by one instead of by their means.
    """

    batch: OpLevelBatch
    lane: int
    apart: bool = False
    _kept: list[tuple[Reach, OpLevelSteps]] = field(default_factory=list)

    def steps(self, reach: Reach) -> OpLevelSteps:
        """Prices of every pass within `reach`; the same object while it suffices."""
        for known, steps in self._kept:
            if known.covers(reach):
                return steps
        built = OpLevelSteps(self._prefill(reach), self._decode(reach))
        self._kept[:] = [(reach, built), *self._kept[: KEPT_STEPS - 1]]
        return built

    def _prefill(self, reach: Reach):
        lengths = reach.prompt_lengths()
        if not lengths.size:
            return FreeWork()
        by_length = (
            not self.batch.pricer.analytic and self.batch.host.cp[self.lane] == 1
        )
        if by_length and lengths.sum() <= SCALAR_CELLS:
            return prefill_table(self.batch, self.lane, lengths, reach.new_tokens)
        found = prefill_surface(self.batch, self.lane, lengths, reach.new_tokens)
        return SurfacePrefill(found.stack, np.array(self.lane, np.int32), found.options)

    def _decode(self, reach: Reach):
        lengths = reach.decode_lengths()
        if not lengths.size:
            return FreeWork()
        cells = int(np.maximum(lengths - reach.shortest + 1, 0).sum())
        few = cells <= SCALAR_CELLS
        # A table pays when it is read more often than it is long.
        if few or (cells <= TABLE_CELLS and cells <= TABLE_SHARE * reach.passes):
            return decode_table(
                self.batch, self.lane, reach.shortest, lengths, one_by_one=few
            )
        rows = self.batch.nextn + 1
        by_row = np.repeat(lengths, rows)
        found = decode_surface(self.batch, self.lane, reach.shortest, by_row)
        return SurfaceDecode(
            found.stack,
            np.array(self.lane, np.int32),
            np.array(rows, np.int32),
            found.options,
        )


def unpriced_steps(prices: OpLevelPrices) -> OpLevelSteps:
    """Prices inside the measured grid only, until the workload is known."""
    surface = prices.batch.surface(hold=False)
    lane, rows = (
        np.array(prices.lane, np.int32),
        np.array(prices.batch.nextn + 1, np.int32),
    )
    return OpLevelSteps(
        SurfacePrefill(surface.stack, lane, surface.options),
        SurfaceDecode(surface.stack, lane, rows, surface.options),
    )
