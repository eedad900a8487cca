"""Checks of a group of golden cases on each path; failures say which figure differs."""

from __future__ import annotations

from typing import Any

import numpy as np
from op_level_cases import Group, PlainPath, differences

from aisim_jax._errors import InvalidInputError, MissingPerfDataError, UnsupportedError
from aisim_jax.estimators._breakdown import Query, _price_attention, price_entries
from aisim_jax.estimators._lowering import AttentionTerm, Entry, OverlapTerm, TokenTerm
from aisim_jax.estimators._token_curves import TokenPricer


ERRORS = {"ValueError": InvalidInputError, "NotImplementedError": UnsupportedError}


def check_refusals(group: Group) -> None:
    """Cases that do not compile keep the reason; every other case compiles."""
    for case, error in zip(group.cases, group.batch.errors, strict=False):
        expected = case.get("error")
        if expected:
            assert isinstance(error, ERRORS[expected["type"]]), case["parallel"]
        elif isinstance(error, MissingPerfDataError):
            figures = (
                row[at]
                for kind, at in (("prefill", 3), ("decode", 2))
                for row in case[kind]
            )
            assert None in figures, case["parallel"]
        else:
            assert error is None, case["parallel"]


def check_batched_steps(group: Group) -> None:
    """All layouts and queries of a kind in one call."""
    batch = group.batch
    _same(group, "prefill", 3, batch.prefill_ms(*group.columns("prefill", 3)))
    lane, requests, kv = group.columns("decode", 2)
    _same(group, "decode", 2, batch.decode_ms(lane, requests, kv + 1))
    _same(group, "mixed", 5, batch.mixed_ms(*group.columns("mixed", 5)))


def check_batched_iterations(group: Group) -> None:
    """Forward passes from their five sums, the slowest rank counting."""
    rows = group.rows("fpm")
    ranks = [(i, *rank) for i, (each, *_) in rows for rank in each]
    if not ranks:
        return
    ms = group.batch.scheduled_ms(*np.array(ranks, float).T)
    first = np.cumsum([0, *(len(row[0]) for _, row in rows)])[:-1]
    _same(group, "fpm", 1, np.maximum.reduceat(ms, first))


def check_scalar_steps(group: Group) -> None:
    """The same steps, one plain call each; mixed steps by their three parts."""
    for lane, case in enumerate(group.cases):
        if "prefill" not in case:
            continue
        plain = PlainPath(group.batch, lane)
        got = [plain.prefill_ms(*row[:3]) for row in case["prefill"]]
        want = [row[3] for row in case["prefill"]]
        wrong = differences(got, want, lambda i, c=case: c["prefill"][i][:3])
        got = [plain.decode_ms(b, kv + 1) for b, kv, *_ in case["decode"]]
        want = [row[2] for row in case["decode"]]
        wrong += differences(got, want, lambda i, c=case: c["decode"][i][:2])
        for row in case["mixed"]:
            parts = plain.mixed_parts_ms(*row[:5])
            want = row[5:] if row[5] is not None else [None]
            got = [sum(parts), *parts][: len(want)]
            wrong += differences(got, want, lambda i, r=row: r[:5])
        assert not wrong, (*_place(group, lane), wrong[:5])


def check_operations(group: Group) -> None:
    """Every operation of every prefill and decode, many queries at once."""
    for lane, phase, queries, figures in _operation_rows(group):
        entries = getattr(group.batch.lanes[lane], phase)
        if isinstance(entries, MissingPerfDataError):
            assert all(isinstance(row, str) for row in figures)
            continue
        for i, entry in enumerate(entries):
            got = _entry_ms(group.batch.pricer, entry, queries)
            kept = [q for q, row in enumerate(figures) if not isinstance(row, str)]
            wrong = differences(
                [got[q] for q in kept],
                [figures[q][i] for q in kept],
                lambda j, asked=[queries[q] for q in kept]: asked[j],
            )
            assert not wrong, (*_place(group, lane), entry.name, wrong[:3])


def check_breakdowns(group: Group, per_case: int = 1) -> None:
    """The breakdown call of a few queries of each case: names, latencies, errors."""
    for lane, phase, queries, figures in _operation_rows(group):
        case, entries = group.cases[lane], getattr(group.batch.lanes[lane], phase)
        for turn in range(per_case):
            at = (lane * per_case + turn) % len(queries)
            if isinstance(figures[at], str):
                _check_missing(group.batch.pricer, entries, queries[at], figures[at])
                continue
            priced = price_entries(group.batch.pricer, entries, queries[at])
            assert [op.name for op in priced] == case[f"{phase}_ops"]
            got = [op.ms for op in priced]
            wrong = differences(got, figures[at], lambda i, p=priced: p[i].name)
            assert not wrong, (*_place(group, lane), queries[at], wrong)


def _check_missing(pricer: TokenPricer, entries: Any, query: Query, error: str) -> None:
    assert error == "PerfDataNotAvailableError"
    if isinstance(entries, MissingPerfDataError):
        return
    try:
        price_entries(pricer, entries, query)
    except MissingPerfDataError:
        return
    raise AssertionError(f"{query} has a price")


def _operation_rows(group: Group):
    """(lane, phase, queries, figures of each query or an error name) of every case."""
    draft = group.batch.nextn + 1
    for lane, case in enumerate(group.cases):
        queries, figures = [], []
        for b, isl, prefix, _, row in case.get("prefill", ()):
            new = isl - prefix
            queries.append(Query(b * new, b, b, new, prefix))
            figures.append(row)
        if queries:
            yield lane, "context", queries, figures
        queries, figures = [], []
        for b, kv, _, row in case.get("decode", ()):
            rows = b * draft
            queries.append(Query(rows, rows, rows, 1, kv_len=kv + 1))
            figures.append(row)
        if queries:
            yield lane, "generation", queries, figures


def _entry_ms(pricer: TokenPricer, entry: Entry, queries: list[Query]) -> np.ndarray:
    total = np.zeros(len(queries))
    for term in entry.terms:
        if isinstance(term, AttentionTerm):
            total += [_price_attention(term, query)[0] for query in queries]
        elif isinstance(term, OverlapTerm):
            left, right = (
                sum(_token_ms(pricer, part, queries) for part in side)
                for side in (term.left, term.right)
            )
            total += np.maximum(left, right)
        else:
            total += _token_ms(pricer, term, queries)
    return total


def _token_ms(pricer: TokenPricer, term: TokenTerm, queries: list[Query]) -> np.ndarray:
    counts = [query.logits if term.logits else query.tokens for query in queries]
    return term.op.scale * pricer.curve(term.op, np.array(counts))


def named(group: Group) -> str:
    """Model, system and engine."""
    case = group.cases[0]
    return f"{case['model']} {case['system']} {case['backend']}"


def _place(group: Group, lane: int) -> tuple[str, Any]:
    return named(group), group.cases[lane]["parallel"]


def _same(group: Group, kind: str, counts: int, got: np.ndarray) -> None:
    rows = group.rows(kind)
    wrong = differences(
        got,
        [row[counts] for _, row in rows],
        lambda i: (group.cases[rows[i][0]]["parallel"], rows[i][1][:counts]),
    )
    assert not wrong, (named(group), kind, wrong[:5])
