"""What one replay of the SGLang scheduler carries: shapes, inputs, state.

Indices are -1 for none. A rank is worker * ranks + rank. Lists of a rank live in
rows of `slots` entries, flattened; queues are chained through `Live.next`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from .._arrays import Array
from ._block_cells import Cells, cells
from ._timing import Steps


(
    RUNNING,
    DONE,
    STALLED,
    NEEDS_TREE,
    NODES,
    PASSES,
    ADMISSIONS,
    JOINS,
    UNPRICED,
    ACTIONS,
) = range(10)


class RadixShape(NamedTuple):
    """Static sizes, the compile key: nodes 0 counts pages only, pages 0 shares nothing.

    Logs of size 0 are not kept. With prefill workers, these and their ranks come first,
    and request r has two rows: r in the decode pool, r + reqs / 2 in the prefill pool.
    workers, ranks: of the decode pool, or the only one. actions: room for hand-over.
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
    prefill_workers: int = 0
    prefill_ranks: int = 0
    actions: int = 0

    @property
    def source_ranks(self) -> int:
        """Ranks of the prefill pool."""
        return self.prefill_workers * self.prefill_ranks

    @property
    def all_ranks(self) -> int:
        """Ranks of all workers."""
        return self.source_ranks + self.workers * self.ranks

    @property
    def all_workers(self) -> int:
        """Workers of all pools."""
        return self.prefill_workers + self.workers


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


class RoleSteps(Steps):
    """Prices of two pools: prefill passes of the one, decode passes of the other."""

    prefill: Steps
    decode: Steps

    def prefill_ns(self, requests: Any, isl: Any, prefix: Any) -> Any:
        """As the prefill pool answers."""
        return self.prefill.prefill_ns(requests, isl, prefix)

    def decode_ns(self, requests: Any, context: Any) -> Any:
        """As the decode pool answers."""
        return self.decode.decode_ns(requests, context)


class Transfer(NamedTuple):
    """Delay of a hand-over: latency, or tokens * bytes / bytes_per_s, then ms."""

    bytes_per_token: Float[Array, ""]  # 0: only the latency
    bytes_per_s: Float[Array, ""]
    full_prompt: Bool[Array, ""]
    latency_ms: Float[Array, ""]


class RadixLane(NamedTuple):
    """One scenario. With a prefill pool: its limits, and how its KV is handed over."""

    load: RadixLoad
    engine: RadixEngine
    steps: Steps
    prefill: RadixEngine | None = None
    transfer: Transfer | None = None


class Tree(NamedTuple):
    """Radix nodes; node k < ranks is the root of rank k.

    A node is the edge from end[parent] to end, spelt by the row of `owner`.
    """

    owner: Cells
    end: Cells
    parent: Cells
    child: Cells
    after: Cells
    before: Cells
    locks: Cells
    home: Cells
    stamp: Cells
    spare: Cells
    spares: Int[Array, ""]
    clock: Int[Array, ""]
    full: Bool[Array, ""]


class Live(NamedTuple):
    """Scheduler state and answers of every request."""

    generated: Cells
    owned: Cells
    node: Cells
    cached: Cells
    admitted: Cells
    used: Cells
    next: Cells
    joined: Cells
    admissions: Cells
    rank: Cells
    arrival_ms: Float[Array, " reqs"]
    admit_ms: Float[Array, " reqs"]
    first_ms: Float[Array, " reqs"]
    second_ms: Float[Array, " reqs"]
    last_ms: Float[Array, " reqs"]
    terminal_ms: Float[Array, " reqs"]
    first_reuse: Cells
    reuse: Cells


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
    run: Cells
    finish: Cells
    emit: Cells


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
    """Arrivals that depend on the run: binary heap by (instant, order of insertion).

    Instants are the bits of float64 ms >= 0, which sort alike.
    """

    instant: Cells
    order: Cells
    row: Cells  # 2 * request + (1 when it has passed the tokenizer)
    size: Int[Array, ""]
    inserted: Int[Array, ""]
    soonest_ms: Float[Array, ""]


class Handover(NamedTuple):
    """Requests between the pools. Lists are chained through `Live.next`.

    asked, built: heads and tails of the requests of a rank that wait for pages, and of
    those whose KV is there. later: of what waits for the end of a worker's pass. actions:
    ring of codes, see `_radix_reserve`.
    """

    asked: Int[Array, "ranks two"]
    built: Int[Array, "ranks two"]
    later: Int[Array, "workers two"]
    actions: Cells
    first: Int[Array, ""]
    count: Int[Array, ""]
    full: Bool[Array, ""]
    destined: Int[Array, ""]
    submitted: Int[Array, ""]
    granted: Int[Array, ""]
    order: Cells  # of reservations
    fresh: Cells  # pages that were reserved
    transfers: Heap
    reserved_ms: Float[Array, " reqs"]
    activated_ms: Float[Array, " reqs"]
    released_ms: Float[Array, " reqs"]


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
    batch: Cells
    this: Pass
    handover: Handover | None = None


def at(array: Any, index: Any) -> Any:
    """array[index]; the index is within bounds."""
    if isinstance(array, Cells):
        return array[index]
    return array.at[index].get(mode="promise_in_bounds")


def put(array: Any, index: Any, value: Any) -> Any:
    """array[index] = value; the index is within bounds."""
    if isinstance(array, Cells):
        return array.put(index, value)
    value = jnp.asarray(value).astype(array.dtype)
    return array.at[index].set(value, mode="promise_in_bounds")


def put_where(keep: Any, array: Any, index: Any, value: Any) -> Any:
    """array[index] = value where `keep`."""
    if isinstance(array, Cells):
        return array.put(index, value, keep)
    value = jnp.asarray(value).astype(array.dtype)
    return array.at[jnp.where(keep, index, array.shape[0])].set(value, mode="drop")


def seen(result: Int[Array, ""], *read: Cells) -> None:
    """A loop that read these cells gave the result: later changes come after it."""
    for array in read:
        array.reads.append(result)


def _filled(size: int, value: Any, dtype: Any) -> Any:
    return jnp.full((size,), value, dtype)


def _fresh_live(n: int) -> Live:
    nan = _filled(n, jnp.nan, jnp.float64)
    return Live(
        generated=cells(n, 0), owned=cells(n, 0), node=cells(n, -1), cached=cells(n, 0),
        admitted=cells(n, 0), used=cells(n, 0, "int64"), next=cells(n, -1),
        joined=cells(n, -1), admissions=cells(n, 0), rank=cells(n, -1), arrival_ms=nan,
        admit_ms=nan, first_ms=nan, second_ms=nan, last_ms=nan, terminal_ms=nan,
        first_reuse=cells(n, 0), reuse=cells(n, 0),
    )  # fmt: skip


def _fresh_ranks(shape: RadixShape, lane: RadixLane) -> Ranks:
    engine = lane.engine
    k, i32 = shape.all_ranks, jnp.int32
    zero, none = _filled(k, 0, i32), _filled(k, -1, i32)
    lists = k * shape.slots
    return Ranks(
        free=zero + _pages_of_ranks(shape, lane), evictable=zero,
        ratio=_filled(k, 0.0, jnp.float64) + engine.limits.ratio_initial, hold=zero,
        running=zero, head=none, tail=none, reject_head=none, reject_tail=none,
        rejecting=none, finishing=zero, emitting=zero,
        prefill_query=jnp.zeros((k, 3), i32), decode_query=jnp.zeros((k, 2), i32),
        decode_passes=zero, own_end_ms=_filled(k, 0.0, jnp.float64),
        run=cells(lists, 0), finish=cells(lists, 0), emit=cells(lists, 0),
    )  # fmt: skip


def _pages_of_ranks(shape: RadixShape, lane: RadixLane) -> Int[Array, ""] | Any:
    if lane.prefill is None:
        return lane.engine.pages
    source = jnp.arange(shape.all_ranks) < shape.source_ranks
    return jnp.where(source, lane.prefill.pages, lane.engine.pages)


def _fresh_heap(n: int) -> Heap:
    zero, never = jnp.int32(0), jnp.float64(jnp.inf)
    return Heap(cells(n, 0, "int64"), cells(n, 0), cells(n, 0), zero, zero, never)


def _fresh_handover(shape: RadixShape) -> Handover | None:
    if not shape.prefill_workers:
        return None
    zero, none = jnp.int32(0), jnp.full((shape.all_ranks, 2), -1, jnp.int32)
    nan = _filled(shape.reqs, jnp.nan, jnp.float64)
    return Handover(
        asked=none, built=none, later=jnp.full((shape.all_workers, 2), -1, jnp.int32),
        actions=cells(shape.actions, 0), first=zero, count=zero, full=jnp.bool_(False),
        destined=zero, submitted=zero, granted=zero, order=cells(shape.reqs, 0),
        fresh=cells(shape.reqs, 0), transfers=_fresh_heap(shape.reqs), reserved_ms=nan,
        activated_ms=nan, released_ms=nan,
    )  # fmt: skip


def _fresh_tree(shape: RadixShape) -> Tree:
    k, m = shape.all_ranks, max(shape.nodes, 1)
    nodes = jnp.arange(m + 1, dtype=jnp.int32)
    return Tree(
        owner=cells(m, -1), end=cells(m, 0), parent=cells(m, -1), child=cells(m, -1),
        after=cells(m, -1), before=cells(m, -1), locks=cells(m, 1),
        home=Cells(jnp.minimum(nodes, k - 1)), stamp=cells(m, 0, "int64"),
        spare=Cells(jnp.minimum(nodes + k, m - 1)), spares=jnp.int32(max(m - k, 0)),
        clock=jnp.int64(0), full=jnp.bool_(False),
    )  # fmt: skip


def _fresh_logs(shape: RadixShape) -> Logs:
    zero, i32, f64 = jnp.int32(0), jnp.int32, jnp.float64
    admitted, passes, joins = shape.admissions, shape.passes, shape.joins
    return Logs(
        zero, _filled(admitted, 0, i32), _filled(admitted, 0.0, f64),
        _filled(admitted, 0, i32), zero, _filled(passes, 0.0, f64),
        _filled(passes, 0.0, f64), _filled(passes, 0.0, f64),
        jnp.zeros((passes, 7), i32), zero, _filled(joins, -1, i32),
        _filled(joins, 0, i32), _filled(joins, 0, i32), _filled(joins, 0.0, f64),
    )  # fmt: skip


def start_state(shape: RadixShape, lane: RadixLane) -> RadixState:
    """The state at time 0, before any arrival."""
    zero, workers = jnp.int32(0), shape.all_workers
    busy_ms = _filled(workers, 0.0, jnp.float64)
    n = shape.reqs
    heap = _fresh_heap(n)
    return RadixState(
        now=jnp.float64(0.0),
        status=jnp.int32(RUNNING),
        live=_fresh_live(n),
        ranks=_fresh_ranks(shape, lane),
        tree=_fresh_tree(shape),
        heap=heap,
        logs=_fresh_logs(shape),
        totals=Totals(zero, jnp.int64(0), zero, jnp.int64(0), busy_ms, zero),
        arrived=zero,
        place=zero,
        turn=_filled(workers, 0, jnp.int32),
        end_ms=_filled(workers, jnp.inf, jnp.float64),
        server_ms=_filled(
            shape.servers * max(shape.prefill_workers, 1), 0.0, jnp.float64
        ),
        batch=cells(shape.slots, 0),
        this=fresh_pass(jnp.float64(0.0)),
        handover=_fresh_handover(shape),
    )


def fresh_pass(now: Float[Array, ""]) -> Pass:
    """A pass that has done nothing yet."""
    no = jnp.bool_(False)
    return Pass(no, no, no, no, no, jnp.int32(1), now, now, now)
