"""From an operation list to the terms that a step sums, tables resolved once.

`lower` decides what each operation needs (a token curve or an attention slice), settles
every fallback, and keeps the list's order and names so that a step can be broken down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .._errors import MissingPerfDataError
from ..models import (
    ContextAttention,
    ContextMla,
    Fallback,
    GenerationAttention,
    GenerationMla,
    MlaModule,
    Operation,
    Overlap,
)
from ._attention import AttentionOperation, AttentionTable, prepare_attention
from ._token_curves import TokenOperation, TokenPricer


AttentionKinds = (
    ContextAttention,
    GenerationAttention,
    ContextMla,
    GenerationMla,
    MlaModule,
)
APART = ("context_attention", "generation_attention")


@dataclass(frozen=True, slots=True)
class TokenTerm:
    """scale x curve(tokens); `logits` curves take the number of requests in prefill."""

    op: TokenOperation
    logits: bool


@dataclass(frozen=True, slots=True)
class AttentionTerm:
    """scale x attention(batch, lengths)."""

    op: ContextAttention | GenerationAttention | ContextMla | GenerationMla | MlaModule
    table: AttentionTable


@dataclass(frozen=True, slots=True)
class OverlapTerm:
    """The slower of two sums."""

    left: tuple[TokenTerm, ...]
    right: tuple[TokenTerm, ...]


Term = TokenTerm | AttentionTerm | OverlapTerm


@dataclass(frozen=True, slots=True)
class Entry:
    """One operation of the list: its name and the terms that it sums.

    `apart` marks top-level attention, which mixed steps price separately.
    """

    name: str
    terms: tuple[Term, ...]
    apart: bool


def lower(pricer: TokenPricer, operations: Sequence[Operation]) -> tuple[Entry, ...]:
    """Resolve the operations of one phase against the tables of `pricer`.

    Raises MissingPerfDataError when an attention slice does not exist.
    """
    return tuple(
        Entry(op.name, _terms(pricer, op), op.name in APART) for op in operations
    )


def _terms(pricer: TokenPricer, op: Operation) -> tuple[Term, ...]:
    if isinstance(op, Fallback):
        try:
            return _terms(pricer, op.primary)
        except MissingPerfDataError:
            return tuple(t for part in op.alternative for t in _terms(pricer, part))
    if isinstance(op, Overlap):
        return (OverlapTerm(_side(op.left), _side(op.right)),)
    if isinstance(op, AttentionKinds):
        return (AttentionTerm(op, _attention(pricer, op)),)
    return (TokenTerm(op, op.name.endswith("logits_gemm")),)


def _attention(pricer: TokenPricer, op: AttentionOperation) -> AttentionTable:
    """The slice that serves `op`, prepared once per pricer and distinct operation."""
    key = replace(op, name="", scale=1.0)
    if key not in pricer.prepared:
        pricer.prepared[key] = prepare_attention(
            pricer.tables, op, analytic=pricer.analytic
        )
    return pricer.prepared[key]


def _side(parts: tuple[Operation, ...]) -> tuple[TokenTerm, ...]:
    side = []
    for op in parts:
        if isinstance(op, (Fallback, Overlap, *AttentionKinds)):
            raise TypeError(f"{op.name}: only token operations can overlap")
        side.append(TokenTerm(op, False))
    return tuple(side)
