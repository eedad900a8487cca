"""One forward pass, operation by operation, with the origin of every figure.

This is the plain path: no compiled tables, one call per operation. It answers
breakdowns and, in tests, checks that the compiled surface adds up to the same sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .._errors import MissingPerfDataError
from ._lowering import AttentionTerm, Entry, OverlapTerm, TokenTerm
from ._token_curves import TokenPricer, worst_origin


@dataclass(frozen=True, slots=True)
class OperationPrice:
    """Latency of one operation over all its layers, ms, and how it was obtained.

    origin: measured (a table point), interpolated (between points), extrapolated
    (beyond the points or from neighbours), or analytic (a formula, no table).
    """

    name: str
    ms: float
    origin: str


@dataclass(frozen=True, slots=True)
class Query:
    """What the operations of one pass see. logits: rows of the final projection."""

    tokens: int
    logits: int
    batch: int
    new: int
    cached: int = 0
    kv_len: int = 0


def price_entries(
    pricer: TokenPricer, entries: Sequence[Entry], query: Query
) -> list[OperationPrice]:
    """Price every entry of one phase at `query`, in list order.

    Raises MissingPerfDataError naming the operation that no table serves.
    """
    return [_price_entry(pricer, entry, query) for entry in entries]


def _price_entry(pricer: TokenPricer, entry: Entry, query: Query) -> OperationPrice:
    total, origin = 0.0, "analytic"
    for term in entry.terms:
        if isinstance(term, OverlapTerm):
            sides = [
                [_price_token(pricer, part, query) for part in side]
                for side in (term.left, term.right)
            ]
            ms, origins = max(
                (sum(ms for ms, _ in side), [how for _, how in side]) for side in sides
            )
            how = worst_origin(*origins)
        elif isinstance(term, AttentionTerm):
            ms, how = _price_attention(term, query)
        else:
            ms, how = _price_token(pricer, term, query)
        if np.isnan(ms):
            raise MissingPerfDataError(
                f"{entry.name}: no measured data near {query.tokens} tokens on "
                f"{pricer.spec.name} {pricer.tables.backend} {pricer.tables.version}; "
                "use a shorter step or another precision"
            )
        total += ms
        origin = worst_origin(origin, how)
    return OperationPrice(entry.name, total, origin)


def _price_attention(term: AttentionTerm, query: Query) -> tuple[float, str]:
    if term.table.is_context:
        ms, how = term.table.context_ms(query.batch, query.new, query.cached)
    else:
        ms, how = term.table.generation_ms(query.batch, query.kv_len)
    return term.op.scale * ms, how


def _price_token(
    pricer: TokenPricer, term: TokenTerm, query: Query
) -> tuple[float, str]:
    tokens = query.logits if term.logits else query.tokens
    ms = float(pricer.curve(term.op, np.array([tokens]))[0])
    return term.op.scale * ms, pricer.origin(term.op, tokens)
