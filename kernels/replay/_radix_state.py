"""What one replay of the SGLang scheduler carries: shapes, inputs, state.

Indices are -1 for none. A rank is worker * ranks + rank. Lists of a rank live in
rows of `slots` entries, flattened; queues are chained through `Live.next`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from .._arrays import Array
from ._timing import Steps


RUNNING, DONE, STALLED, NEEDS_TREE, NODES, PASSES, ADMISSIONS, JOINS, UNPRICED = range(9)


class RadixShape(NamedTuple):
    """Static sizes, the compile key: nodes 0 counts pages only, pages 0 shares nothing.

    Logs of size 0 are not kept.
    """

    reqs: int
    slots: int
    workers: int
    ranks: int
    nodes: int
    pages: int
    servers: int
    passes: int
    admissions: int
    joins: int

    @property
    def all_ranks(self) -> int:
        """Ranks of all workers."""
        return self.workers * self.ranks


class SglangLimits(NamedTuple):
    """Constants of the scheduler.

    clip: most output that an admission reserves for. The ratio is the share of a running
    request's output that is reserved; a decode pass lowers it by `ratio_decay`.
    retract: free tokens per running request that a retraction aims at. retries:
    passes without effect before a run counts as stalled.
    """

    chunked_prefill_tokens: Int[Array, ""]
    max_prefill_tokens: Int[Array, ""]
    clip_tokens: Int[Array, ""]
    ratio_initial: Float[Array, ""]
    ratio_floor: Float[Array, ""]
    ratio_decay: Float[Array, ""]
    retract_tokens: Int[Array, ""]
    retries: Int[Array, ""]


class RadixLoad(NamedTuple):
    """Requests, read only. Rows of `ids` spell sequences page by page from `start`.

    order, order_ms: turn-0 rows by arrival; in a closed loop in index order, taken one
    by one. follow: the next turn of the session. osl is cut to the context limit.
    """

    isl: Int[Array, " reqs"]
    osl: Int[Array, " reqs"]
    rejected: Bool[Array, " reqs"]
    follow: Int[Array, " reqs"]
    delay_ms: Float[Array, " reqs"]
    order: Int[Array, " reqs"]
    order_ms: Float[Array, " reqs"]
    sessions: Int[Array, ""]
    in_flight: Int[Array, ""]  # 0: open loop
    ids: Int[Array, " pages"]
    start: Int[Array, " reqs"]


class RadixEngine(NamedTuple):
    """Limits of every rank, read only. giga: 1e9, not known to the compiler."""

    page: Int[Array, ""]
    pages: Int[Array, ""]
    slots: Int[Array, ""]
    interval: Int[Array, ""]
    caching: Bool[Array, ""]
    ready_ms: Float[Array, ""]
    cap_ms: Float[Array, ""]
    servers: Int[Array, ""]
    service_base_ms: Float[Array, ""]
    service_us_per_token: Float[Array, ""]
    giga: Float[Array, ""]
    limits: SglangLimits


class RadixLane(NamedTuple):
    """One scenario."""

    load: RadixLoad
    engine: RadixEngine
    steps: Steps


class Tree(NamedTuple):
    """Radix nodes; node k < ranks is the root of rank k.

    A node is the edge from end[parent] to end, spelt by the row of `owner`.
    """

    owner: Int[Array, " nodes"]
    end: Int[Array, " nodes"]
    parent: Int[Array, " nodes"]
    child: Int[Array, " nodes"]
    after: Int[Array, " nodes"]
    before: Int[Array, " nodes"]
    locks: Int[Array, " nodes"]
    home: Int[Array, " nodes"]
    stamp: Int[Array, " nodes"]
    spare: Int[Array, " nodes"]
    spares: Int[Array, ""]
    clock: Int[Array, ""]
    full: Bool[Array, ""]


class Live(NamedTuple):
    """Scheduler state and answers of every request."""

    generated: Int[Array, " reqs"]
    owned: Int[Array, " reqs"]
    node: Int[Array, " reqs"]
    cached: Int[Array, " reqs"]
    admitted: Bool[Array, " reqs"]
    used: Int[Array, " reqs"]
    next: Int[Array, " reqs"]
    joined: Int[Array, " reqs"]
    rank: Int[Array, " reqs"]
    arrival_ms: Float[Array, " reqs"]
    admit_ms: Float[Array, " reqs"]
    first_ms: Float[Array, " reqs"]
    second_ms: Float[Array, " reqs"]
    last_ms: Float[Array, " reqs"]
    terminal_ms: Float[Array, " reqs"]
    first_reuse: Int[Array, " reqs"]
    reuse: Int[Array, " reqs"]


class Ranks(NamedTuple):
    """Scheduler state of every rank; pages, tokens, ns."""

    free: Int[Array, " ranks"]
    evictable: Int[Array, " ranks"]
    ratio: Float[Array, " ranks"]
    hold: Int[Array, " ranks"]
    running: Int[Array, " ranks"]
    head: Int[Array, " ranks"]
    tail: Int[Array, " ranks"]
    reject_head: Int[Array, " ranks"]
    reject_tail: Int[Array, " ranks"]
    rejecting: Int[Array, " ranks"]
    finishing: Int[Array, " ranks"]
    emitting: Int[Array, " ranks"]
    prefill_query: Int[Array, "ranks three"]
    decode_query: Int[Array, "ranks two"]
    decode_passes: Int[Array, " ranks"]
    own_end_ms: Float[Array, " ranks"]
    run: Int[Array, " ranks_slots"]
    finish: Int[Array, " ranks_slots"]
    emit: Int[Array, " ranks_slots"]


class Pass(NamedTuple):
    """What the pass of one worker has done so far."""

    worked: Bool[Array, ""]
    prefilled: Bool[Array, ""]
    deferred: Bool[Array, ""]
    effect: Bool[Array, ""]
    changed: Bool[Array, ""]
    passes: Int[Array, ""]
    first_ms: Float[Array, ""]
    second_ms: Float[Array, ""]
    end_ms: Float[Array, ""]


class Heap(NamedTuple):
    """Arrivals that depend on the run: binary heap by (instant, order of insertion)."""

    at_ms: Float[Array, " reqs"]
    order: Int[Array, " reqs"]
    row: Int[Array, " reqs"]  # 2 * request + (1 when it has passed the tokenizer)
    size: Int[Array, ""]
    inserted: Int[Array, ""]


class Logs(NamedTuple):
    """Fixed-capacity records; counts go on beyond the capacity."""

    admissions: Int[Array, ""]
    admitted: Int[Array, " admissions"]
    admitted_ms: Float[Array, " admissions"]
    admitted_reuse: Int[Array, " admissions"]
    passes: Int[Array, ""]
    pass_start_ms: Float[Array, " passes"]
    pass_end_ms: Float[Array, " passes"]
    pass_seen_ms: Float[Array, " passes"]
    pass_counts: Int[Array, "passes seven"]
    joins: Int[Array, ""]
    join_row: Int[Array, " joins"]
    join_pass: Int[Array, " joins"]
    leave_pass: Int[Array, " joins"]
    join_ms: Float[Array, " joins"]


class Totals(NamedTuple):
    """Telemetry."""

    retractions: Int[Array, ""]
    evicted_pages: Int[Array, ""]
    peak_pages: Int[Array, ""]
    committed_tokens: Int[Array, ""]
    busy_ms: Float[Array, " workers"]
    events: Int[Array, ""]


class RadixState(NamedTuple):
    """Everything that changes."""

    now: Float[Array, ""]
    status: Int[Array, ""]
    live: Live
    ranks: Ranks
    tree: Tree
    heap: Heap
    logs: Logs
    totals: Totals
    arrived: Int[Array, ""]  # of `order`
    place: Int[Array, ""]
    turn: Int[Array, " workers"]
    end_ms: Float[Array, " workers"]  # inf when idle
    server_ms: Float[Array, " servers"]
    batch: Int[Array, " slots"]
    this: Pass


def put(array: Array, index: Array, value: Any) -> Any:
    """array[index] = value; the index is within bounds."""
    value = jnp.asarray(value).astype(array.dtype)
    return array.at[index].set(value, mode="promise_in_bounds")


def put_where(keep: Array, array: Array, index: Array, value: Any) -> Any:
    """array[index] = value where `keep`."""
    value = jnp.asarray(value).astype(array.dtype)
    return array.at[jnp.where(keep, index, array.shape[0])].set(value, mode="drop")


def at(array: Array, index: Array) -> Any:
    """array[index]; the index is within bounds."""
    return array.at[index].get(mode="promise_in_bounds")


def _filled(size: int, value: Any, dtype: Any) -> Any:
    return jnp.full((size,), value, dtype)


def start_state(shape: RadixShape, engine: RadixEngine) -> RadixState:
    """The state at time 0, before any arrival."""
    n, k = shape.reqs, shape.all_ranks
    i32, i64, f64 = jnp.int32, jnp.int64, jnp.float64
    nothing, nan = _filled(n, -1, i32), _filled(n, jnp.nan, f64)
    zero = jnp.int32(0)
    live = Live(
        generated=_filled(n, 0, i32), owned=_filled(n, 0, i32), node=nothing,
        cached=_filled(n, 0, i32), admitted=_filled(n, False, jnp.bool_),
        used=_filled(n, 0, i64), next=nothing, joined=nothing, rank=nothing,
        arrival_ms=nan, admit_ms=nan, first_ms=nan, second_ms=nan, last_ms=nan,
        terminal_ms=nan, first_reuse=_filled(n, 0, i32), reuse=_filled(n, 0, i32),
    )  # fmt: skip
    per_rank, none = _filled(k, 0, i32), _filled(k, -1, i32)
    lists = _filled(k * shape.slots, 0, i32)
    ranks = Ranks(
        free=per_rank + engine.pages, evictable=per_rank,
        ratio=_filled(k, 0.0, f64) + engine.limits.ratio_initial, hold=per_rank,
        running=per_rank, head=none, tail=none, reject_head=none, reject_tail=none,
        rejecting=none, finishing=per_rank, emitting=per_rank,
        prefill_query=jnp.zeros((k, 3), i32),
        decode_query=jnp.zeros((k, 2), i32), decode_passes=per_rank,
        own_end_ms=_filled(k, 0.0, f64), run=lists, finish=lists, emit=lists,
    )  # fmt: skip
    m = max(shape.nodes, 1)
    nodes, absent = jnp.arange(m, dtype=i32), _filled(m, -1, i32)
    tree = Tree(
        owner=absent, end=_filled(m, 0, i32), parent=absent, child=absent, after=absent,
        before=absent, locks=_filled(m, 1, i32), home=jnp.minimum(nodes, k - 1),
        stamp=_filled(m, 0, i64), spare=jnp.minimum(nodes + k, m - 1),
        spares=jnp.int32(max(m - k, 0)), clock=jnp.int64(0), full=jnp.bool_(False),
    )  # fmt: skip
    heap = Heap(nan, nothing, nothing, zero, zero)
    logs = Logs(
        zero, _filled(shape.admissions, 0, i32), _filled(shape.admissions, 0.0, f64),
        _filled(shape.admissions, 0, i32), zero, _filled(shape.passes, 0.0, f64),
        _filled(shape.passes, 0.0, f64), _filled(shape.passes, 0.0, f64),
        jnp.zeros((shape.passes, 7), i32), zero, _filled(shape.joins, -1, i32),
        _filled(shape.joins, 0, i32), _filled(shape.joins, 0, i32),
        _filled(shape.joins, 0.0, f64),
    )  # fmt: skip
    return RadixState(
        now=jnp.float64(0.0), status=jnp.int32(RUNNING), live=live, ranks=ranks,
        tree=tree, heap=heap, logs=logs,
        totals=Totals(
            zero, jnp.int64(0), zero, jnp.int64(0), _filled(shape.workers, 0.0, f64), zero
        ),
        arrived=zero, place=zero, turn=_filled(shape.workers, 0, i32),
        end_ms=_filled(shape.workers, jnp.inf, f64),
        server_ms=_filled(shape.servers, 0.0, f64),
        batch=_filled(shape.slots, 0, i32), this=fresh_pass(jnp.float64(0.0)),
    )  # fmt: skip


def fresh_pass(now: Float[Array, ""]) -> Pass:
    """A pass that has done nothing yet."""
    no = jnp.bool_(False)
    return Pass(no, no, no, no, no, jnp.int32(1), now, now, now)
