"""One question at a time: the same prepared arrays, plain Python, no dispatch.

`ScalarSteps` answers the step queries of one lane in microseconds. It reads the token
tables and slabs that the batched kernels read, with the same rules.
"""

from __future__ import annotations

from bisect import bisect_left
from math import inf, log2, nan, sqrt
from operator import itemgetter

from ..kernels import (
    FLOOR,
    MixedWork,
    StepStack,
    context_spans,
    decode_lengths,
    grid_sol_ms,
)
from ._attention import AttentionTable, HeadCut
from ._hold import held_utilisation
from ._hold_cells import HoldCells
from ._plain import PLAIN
from ._stack import PhaseAttention


class ScalarGrid:
    """Look-ups of one attention slice; None where the hold rule must answer."""

    def __init__(self, table: AttentionTable, cells: HoldCells) -> None:
        self._table = table
        self._context = table.is_context
        self._bound = tuple(float(c) for c in table.bound)
        self._cuts = [_Cut(cut) for cut in table.cuts]
        self._cells = cells

    def sol_ms(self, coef, outer: float, inner: float) -> float:
        """Speed of light at grid coordinates, ms."""
        return grid_sol_ms(PLAIN, self._context, coef, outer, inner)

    def ms(self, outer: float, inner: float) -> float:
        """Grid value, survivors and hold included, ms."""
        values = [self._cut_ms(cut, outer, inner) for cut in self._cuts]
        if len(values) == 1 and values[0] is not None:
            return values[0]
        found = [
            (c, v) for c, v in zip(self._cuts, values, strict=True) if v is not None
        ]
        if len(found) == 2:
            (low, a), (high, b) = found
            share = (self._table.heads - low.heads) / (high.heads - low.heads)
            return a + share * (b - a)
        if found:
            cut, value = found[0]
            return value * self._ratio(
                self.sol_ms(self._bound, outer, inner),
                self.sol_ms(cut.bound, outer, inner),
            )
        held = self._held(outer, inner, log2(max(outer, FLOOR)))
        return self.sol_ms(self._bound, outer, inner) / held

    def all_ms(self, outer: float, inners: list[float]) -> list[float]:
        """Values at ascending inner coordinates; all beyond the grid take a short way."""
        if len(self._cuts) == 1 and inners[0] > self._cuts[0].reach(outer):
            log_outer = log2(max(outer, FLOOR))
            return [
                self.sol_ms(self._bound, outer, inner)
                / self._held(outer, inner, log_outer)
                for inner in inners
            ]
        return [self.ms(outer, inner) for inner in inners]

    def _ratio(self, query: float, moved: float) -> float:
        return query / moved if query > 0 and moved > 0 else 1.0

    def _cut_ms(self, cut: _Cut, outer: float, inner: float) -> float | None:
        keys = cut.outer
        at = bisect_left(keys, outer)
        if at < len(keys) and keys[at] == outer:
            return cut.row_ms(at, inner)
        if at == 0 or at == len(keys):
            return None
        low, high = cut.row_ms(at - 1, inner), cut.row_ms(at, inner)
        if low is not None and high is not None:
            share = (outer - keys[at - 1]) / (keys[at] - keys[at - 1])
            if self._context:
                root = sqrt(low)
                root += share * (sqrt(high) - root)
                return root * root
            return low + share * (high - low)
        if low is None and high is None:
            return None
        key, value = (keys[at - 1], low) if low is not None else (keys[at], high)
        assert value is not None
        return value * self._ratio(
            self.sol_ms(self._bound, outer, inner),
            self.sol_ms(self._bound, key, inner),
        )

    def _held(self, outer: float, inner: float, log_outer: float) -> float:
        """Utilisation beyond the grid (see the hold rule)."""
        log_inner = log2(max(inner, FLOOR))
        leaves = self._cells.leaves_at(log_outer, log_inner)
        if leaves is None:
            query = (self._table.heads, outer, inner)
            return held_utilisation(self._table.leaves, query)
        ranked = sorted(
            [
                (square + (a := lo - log_outer) * a + (b := li - log_inner) * b, util)
                for square, lo, li, util in leaves
            ],
            key=_SQUARE,
        )
        reach = sqrt(ranked[4][0])
        total = blend = 0.0
        for square, util in ranked[:4]:
            d = sqrt(square)
            if d < reach:
                weight = (reach - d) / (reach * d + FLOOR)
                weight *= weight
                total += weight
                blend += weight * util
        if total > 0:
            return blend / total
        return sum(util for _, util in ranked[:4]) / 4.0


_SQUARE = itemgetter(0)


class _Cut:
    """One head count of a slice as plain lists."""

    def __init__(self, cut: HeadCut) -> None:
        slab = cut.slab
        self.heads = cut.heads
        self.bound = tuple(float(c) for c in cut.bound)
        self.outer: list[float] = slab.outer.tolist()
        self._rows = [
            (
                slab.inner[inside].tolist(),
                slab.value_ms[r, inside].tolist(),
            )
            for r, inside in enumerate(
                (slab.inner >= low) & (slab.inner <= high)
                for low, high in zip(slab.low, slab.high, strict=True)
            )
        ]

    def reach(self, outer: float) -> float:
        """Largest inner coordinate that a row beside `outer` answers; -inf for none."""
        at = bisect_left(self.outer, outer)
        if at < len(self.outer) and self.outer[at] == outer:
            return self._rows[at][0][-1]
        if at == 0 or at == len(self.outer):
            return -inf
        return max(self._rows[at - 1][0][-1], self._rows[at][0][-1])

    def row_ms(self, row: int, inner: float) -> float | None:
        keys, values = self._rows[row]
        if not keys[0] <= inner <= keys[-1]:
            return None
        at = bisect_left(keys, inner)
        if keys[at] == inner:
            return values[at]
        low = values[at - 1]
        share = (inner - keys[at - 1]) / (keys[at] - keys[at - 1])
        return low + share * (values[at] - low)


class ScalarSteps:
    """Step prices of one lane, ms; NaN where no table answers."""

    def __init__(
        self,
        stack: StepStack,
        phases: tuple[PhaseAttention, PhaseAttention],
        lane: int,
        *,
        analytic: bool,
    ) -> None:
        self._context_tokens = stack.context_tokens_ms[lane]
        self._generation_tokens = stack.generation_tokens_ms[lane]
        self._logits = stack.logits_ms[lane]
        self._context_apart = bool(stack.context_apart[lane])
        self._generation_apart = bool(stack.generation_apart[lane])
        self._cp = int(stack.cp[lane])
        self._tables = [phase.tables[lane] for phase in phases]
        self._scale = [float(phase.scale[lane]) for phase in phases]
        self._analytic = analytic
        self._grids = [
            None
            if table is None
            else ScalarGrid(table, phase.members[phase.group[lane]])
            for table, phase in zip(self._tables, phases, strict=True)
        ]

    def context_attention_ms(self, batch: float, new: float, cached: float) -> float:
        """All layers of prefill attention, ms."""
        table, grid = self._tables[0], self._grids[0]
        if table is None or grid is None:
            return nan
        if self._analytic:
            return self._scale[0] * table.context_ms(batch, new, cached)[0]
        spans = context_spans(PLAIN, new, cached, self._cp)
        total = table.extra_ms
        for span, held in spans if self._cp > 1 else spans[:1]:
            full = span + held
            total += grid.ms(full, batch) * ((full * full - held * held) / full**2)
        return self._scale[0] * total

    def generation_attention_ms(self, rows: float, kv_len: float) -> float:
        """All layers of decode attention, ms."""
        table, grid = self._tables[1], self._grids[1]
        if table is None or grid is None:
            return nan
        if self._analytic:
            return self._scale[1] * table.generation_ms(rows, kv_len)[0]
        if not table.averaged:
            return self._scale[1] * (grid.ms(rows, kv_len) + table.extra_ms)
        lengths = decode_lengths(PLAIN, kv_len)
        mean = sum(grid.all_ms(rows, lengths)) / len(lengths)
        return self._scale[1] * (mean + table.extra_ms)

    def prefill_ms(self, batch: int, isl: int, prefix: int) -> float:
        """Prefill of `batch` requests of isl tokens, `prefix` (< isl) cached; ms."""
        new = isl - prefix
        if new <= 0:
            return nan
        tokens = self._context_tokens[batch * new] + self._logits[batch]
        return float(tokens) + self.context_attention_ms(batch, new, prefix)

    def decode_ms(self, rows: int, kv_len: int) -> float:
        """One decode step of `rows` rows at KV length kv_len; ms."""
        tokens = float(self._generation_tokens[rows])
        return tokens + self.generation_attention_ms(rows, kv_len)

    def mixed_parts_ms(self, work: MixedWork) -> tuple[float, float, float]:
        """The three parts of a mixed step (see MixedWork), ms."""
        tokens = float(self._context_tokens[int(work.tokens)]) + float(self._logits[1])
        part2 = part3 = 0.0
        if not self._context_apart:
            tokens += self.context_attention_ms(1.0, work.tokens, work.prefix)
        elif work.batch > 0:
            part2 = (
                self.context_attention_ms(work.batch, work.new, work.cached)
                / work.passes
            )
        if self._generation_apart and work.rows > 0:
            part3 = self.generation_attention_ms(work.rows, work.kv_len)
        return tokens, part2, part3
