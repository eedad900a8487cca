"""Scheduler quantities reduced to what the parts of a step need.

`xp` is the array namespace (numpy or jax.numpy): the same rules prepare queries on the
host and inside traced code. Counts are whole numbers carried as floats.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ._arrays import Values


class MixedWork(NamedTuple):
    """A step with prefill and decode work.

    Part 1 sees `tokens` tokens as one request after `prefix` cached ones; part 2 is
    prefill attention of `batch` requests of `new` tokens after `cached` ones, divided by
    `passes`; part 3 is decode attention of `rows` rows at `kv_len`. batch = 0 or
    rows = 0 leave their part out.
    """

    tokens: Values
    prefix: Values
    batch: Values
    new: Values
    cached: Values
    passes: Values
    rows: Values
    kv_len: Values


def planned_work(
    xp: Any,
    context_tokens: Values,
    rows: Values,
    isl: Values,
    osl: Values,
    prefix: Values,
) -> MixedWork:
    """A step with a context budget of `context_tokens` and `rows` decode rows.

    tokens = ctx + rows - prefix floor(ctx / isl); prefill attention of ceil(ctx / isl)
    requests, spread over ceil(isl / ctx) passes; decode at isl + floor(osl / 2) + 1.
    """
    whole = prefix * xp.floor(context_tokens / isl)
    return MixedWork(
        tokens=context_tokens + rows - whole,
        prefix=whole,
        batch=xp.ceil(context_tokens / isl),
        new=isl - prefix,
        cached=prefix,
        passes=xp.ceil(isl / xp.maximum(context_tokens, 1.0)),
        rows=rows,
        kv_len=halfway_kv_len(xp, isl, osl),
    )


def halfway_kv_len(xp: Any, isl: Values, osl: Values) -> Values:
    """KV length half-way through decoding, at which a steady state is priced, tokens.

    isl + floor(osl / 2) + 1
    """
    return isl + xp.floor(osl / 2.0) + 1.0


def scheduled_work(
    xp: Any, requests: Values, new: Values, cached: Values, decodes: Values, kv: Values
) -> MixedWork:
    """A step with both kinds of work, from its five sums; averages are priced.

    new > 0. tokens = new + decodes; each request has max(floor(new / n), 1) new tokens
    after floor(cached / n); decode rows sit at max(floor(kv / nd), 1).
    """
    each = xp.maximum(xp.floor(new / xp.maximum(requests, 1.0)), 1.0)
    rows = xp.maximum(decodes, 1.0)
    return MixedWork(
        tokens=new + decodes,
        prefix=cached,
        batch=xp.maximum(xp.ceil(new / each), 1.0),
        new=each,
        cached=xp.floor(cached / xp.maximum(requests, 1.0)),
        passes=xp.maximum(xp.ceil(each / xp.maximum(new, 1.0)), 1.0),
        rows=rows,
        kv_len=xp.maximum(xp.floor(kv / rows), 1.0),
    )


def decode_span(xp: Any, kv_len: Values) -> tuple[Values, Values]:
    """First and last KV length that price decode attention at `kv_len` = S.

    a = max(1, int(0.9 S)) and z = max(a, int(1.1 S)).
    """
    first = xp.maximum(1.0, xp.floor(0.9 * kv_len))
    return first, xp.maximum(first, xp.floor(1.1 * kv_len))


def decode_lengths(xp: Any, kv_len: Values) -> list[Values]:
    """The five KV lengths whose mean prices decode attention at `kv_len`.

    From a to z (see `decode_span`): a + (z - a) i // 4.
    """
    first, last = decode_span(xp, kv_len)
    return [first + xp.floor((last - first) * i / 4.0) for i in range(5)]


def context_spans(
    xp: Any, new: Values, prefix: Values, cp: Values
) -> list[tuple[Values, Values]]:
    """(new, cached) tokens of the prefill attention calls of one rank.

    Context parallelism (cp > 1) cuts the new tokens into 2 cp zig-zag chunks of which a
    rank computes one near the start and one at the end; the second span only counts there.
    """
    chunk = xp.maximum(1.0, xp.ceil(new / (2.0 * cp)))
    first = xp.where(cp > 1, chunk, new)
    return [(first, prefix), (chunk, prefix + new - chunk)]
