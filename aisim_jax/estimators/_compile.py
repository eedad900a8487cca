"""Many deployments lowered at once, and the token tables that their steps sum.

Curves are computed once per distinct operation and shared by every layout that contains
it, so compiling a further layout mostly adds arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float

from .._errors import AisimError, UnsupportedError
from ..models import Operation, OperationLists
from ._lowering import AttentionTerm, Entry, OverlapTerm, Term, TokenTerm, lower
from ._token_curves import TokenOperation, TokenPricer


Phase = tuple[Entry, ...] | AisimError
ONE_TOKEN = np.array([1])


@dataclass(frozen=True, slots=True, eq=False)
class CompiledLane:
    """One deployment: each phase lowered, or the reason why it has no price."""

    context: Phase
    generation: Phase

    @property
    def error(self) -> AisimError | None:
        """The first reason why a phase has no price, or None."""
        for phase in (self.context, self.generation):
            if isinstance(phase, AisimError):
                return phase
        return None


def compile_lanes(
    pricer: TokenPricer, builders: Sequence[Callable[[], OperationLists]]
) -> list[CompiledLane]:
    """Lower every deployment; phases that cannot be priced keep their error."""
    probe = CurveCache(pricer, ONE_TOKEN)
    lanes = []
    for build in builders:
        try:
            operations = build()
        except AisimError as error:
            lanes.append(CompiledLane(error, error))
            continue
        lanes.append(
            CompiledLane(
                _lowered(pricer, probe, operations.context),
                _lowered(pricer, probe, operations.generation),
            )
        )
    return lanes


def _lowered(
    pricer: TokenPricer, probe: CurveCache, operations: Sequence[Operation]
) -> Phase:
    try:
        entries = lower(pricer, operations)
        attention_of(entries)
        token_sum(probe, entries, lambda term: True)
    except AisimError as error:
        return error
    return entries


@dataclass(eq=False)
class CurveCache:
    """Unit curves at fixed token counts, one per distinct operation."""

    pricer: TokenPricer
    tokens: np.ndarray
    _curves: dict[TokenOperation, np.ndarray] = field(default_factory=dict)

    def curve(self, op: TokenOperation) -> Float[np.ndarray, " pts"]:
        """Unit latency at `tokens`, ms."""
        key = replace(op, name="", scale=1.0)
        found = self._curves.get(key)
        if found is None:
            found = self._curves[key] = self.pricer.curve(op, self.tokens)
        return found


def token_sum(
    cache: CurveCache, entries: Sequence[Entry], select: Callable[[TokenTerm], bool]
) -> Float[np.ndarray, " pts"]:
    """Sum of scale x curve over the selected token terms, ms at the cache's tokens."""
    total = np.zeros(cache.tokens.size)
    for entry in entries:
        for term in entry.terms:
            total += term_sum(cache, term, select)
    return total


def term_sum(
    cache: CurveCache, term: Term, select
) -> Float[np.ndarray, " pts"] | float:
    """One term's share of `token_sum`."""
    if isinstance(term, AttentionTerm):
        return 0.0
    if isinstance(term, OverlapTerm):
        left = sum(term_sum(cache, part, select) for part in term.left)
        right = sum(term_sum(cache, part, select) for part in term.right)
        return np.maximum(left, right)
    return term.op.scale * cache.curve(term.op) if select(term) else 0.0


def attention_of(entries: Sequence[Entry]) -> tuple[AttentionTerm, bool]:
    """The attention term of a phase and whether mixed steps price it apart.

    Families priced here have exactly one attention operation per phase.
    """
    found = [
        (term, entry.apart)
        for entry in entries
        for term in entry.terms
        if isinstance(term, AttentionTerm)
    ]
    if len(found) != 1:
        raise UnsupportedError(
            f"{len(found)} attention operations in one phase; this engine prices one"
        )
    return found[0]
