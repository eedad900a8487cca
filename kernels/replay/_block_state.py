"""State of the block engine: schedulers of all workers of one scenario, event by event.

A job is a request in a pool: job = pool * reqs + request. Workers and ranks are numbered
through, pool by pool; with two pools, pool 0 computes prompts and pool 1 decodes.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int

from .._arrays import Array
from ._block_cells import Cells, cells
from ._timing import Steps


RUNNING, FINISHED, STALLED = 0, 1, 2
SLOTS_FULL, LOG_FULL, ACTIONS_FULL, DRAWS_USED, UNPRICED = 3, 4, 5, 6, 7
COMPLETED, REJECTED = 1, 2
NO_LIMIT = 2**30
NAN = float("nan")


class BlockShape(NamedTuple):
    """Static structure: one compilation per value (and per kind of `Steps`).

    slots: of a rank. blocks: of a rank, 0 without a prefix cache. rows, ids: blocks of
    all sequences and their distinct contents. guaranteed: TensorRT-LLM admission.
    servers: of the tokenizer, 0 without. drafts, draws: speculation, uniform numbers of a
    rank. passes, tokens, admissions: entries of the logs, 0 without.
    """

    pools: int
    workers: int
    ranks: int
    slots: int
    reqs: int
    blocks: int
    rows: int
    ids: int
    guaranteed: bool
    servers: int
    drafts: int
    draws: int
    actions: int
    passes: int
    tokens: int
    admissions: int


class PoolLimits(NamedTuple):
    """Engine settings of each pool; tokens, blocks, ms."""

    workers: Int[Array, " pools"]
    ranks: Int[Array, " pools"]
    first_worker: Int[Array, " pools"]
    first_rank: Int[Array, " pools"]
    budget: Int[Array, " pools"]
    sequences: Int[Array, " pools"]
    block_size: Int[Array, " pools"]
    blocks: Int[Array, " pools"]
    max_model_len: Int[Array, " pools"]
    chunked: Int[Array, " pools"]
    caching: Int[Array, " pools"]
    interval: Int[Array, " pools"]
    oldest_first: Int[Array, " pools"]  # preemption in admission order
    startup_ms: Float[Array, " pools"]
    drafts: Int[Array, " pools"]
    acceptance: Float[Array, "pools drafts"]


class Places(NamedTuple):
    """Where workers and ranks belong."""

    pool_of_worker: Int[Array, " workers"]
    pool_of_rank: Int[Array, " ranks"]
    worker_of_rank: Int[Array, " ranks"]
    first_rank: Int[Array, " workers"]
    workers: Int[Array, ""]


class Traffic(NamedTuple):
    """Requests; arrivals of first turns in order, later turns by `following`.

    first_turns: in order of arrival, or of sessions in a closed loop (in_flight > 0).
    service_ms: of the tokenizer.
    """

    isl: Int[Array, " reqs"]
    session: Int[Array, " reqs"]
    following: Int[Array, " reqs"]
    delay_ms: Float[Array, " reqs"]
    service_ms: Float[Array, " reqs"]
    first_turns: Int[Array, " reqs"]
    arrival_ms: Float[Array, " reqs"]  # of first_turns
    sessions: Int[Array, ""]
    in_flight: Int[Array, ""]
    servers: Int[Array, ""]
    until_ms: Float[Array, ""]


class Jobs(NamedTuple):
    """Constants of a job. target: its length at completion; wants: whether it has output.

    first_key, first_row: its first block in `keys` and in the table of held blocks.
    """

    target: Int[Array, " jobs"]
    wants: Int[Array, " jobs"]
    first_row: Int[Array, " jobs"]
    first_token: Int[Array, " reqs"]
    keys: Int[Array, " rows"]


class TransferCost(NamedTuple):
    """ms = tokens * bytes_per_token / bytes_per_s * 1000, or the latency if not priced."""

    bytes_per_token: Float[Array, ""]
    bytes_per_s: Float[Array, ""]
    latency_ms: Float[Array, ""]
    priced: Int[Array, ""]
    full_prompt: Int[Array, ""]


class BlockLane(NamedTuple):
    """Constants of one scenario. steps: of each pool; draws: uniform in [0, 1)."""

    limits: PoolLimits
    places: Places
    traffic: Traffic
    jobs: Jobs
    transfer: TransferCost
    draws: Float[Array, "ranks draws"]
    steps: tuple[Steps, ...]


class Blocks(NamedTuple):
    """Block pools of all ranks. Without a cache only `free` and `idle` (0) are used.

    Idle blocks (findable, unreferenced) form a ring from least to most recently used
    around a sentinel; free blocks a chain through `newer`. Copies of one content form a
    ring in order of registration, whose first is `first[rank, id]`, -1 if none.
    """

    free: Cells  # ranks
    idle: Cells  # ranks
    releases: Cells  # ranks
    free_head: Cells  # ranks
    users: Cells  # blocks
    key: Cells  # blocks; -1 while not findable
    older: Cells  # blocks, then sentinels of the ranks
    newer: Cells
    copy_before: Cells  # blocks
    copy_after: Cells
    first: Cells  # ranks x ids
    held: Cells  # rows: block of each place of a sequence
    stored: Cells  # ranks: contents that became findable
    removed: Cells  # ranks: contents that ceased to be


class Sequences(NamedTuple):
    """Per job. link: successor in the one queue that holds the job; order: of reserving."""

    length: Cells
    computed: Cells
    blocks: Cells
    published: Cells
    taken: Cells
    admissions: Cells
    built: Cells
    order: Cells
    link: Cells


class Ranks(NamedTuple):
    """Per rank. Queues are chains of jobs: waiting, asking for room, ended, held."""

    slots: Cells  # ranks x slots: running jobs in admission order
    running: Cells
    waiting: Cells
    waiting_end: Cells
    asking: Cells
    asking_end: Cells
    ended: Cells
    ended_end: Cells
    held: Cells
    held_end: Cells
    asked: Cells
    refused_at: Cells
    promised: Cells
    bound: Cells
    drawn: Cells
    peak: Cells
    stored: Cells  # as of the last pass end, as is `removed`
    removed: Cells


class Workers(NamedTuple):
    """Per worker. extra: decode passes that follow the planned one unchanged."""

    end_ms: Float[jax.Array, " workers"]
    planned_end_ms: Float[jax.Array, " workers"]
    extra: Cells
    contexts: Cells
    group_pass: Cells
    next_rank: Cells
    prefill_tokens: Cells  # of the pass that has not ended
    busy_ms: Float[jax.Array, " workers"]


class Heap(NamedTuple):
    """Binary heap by (key, tie); keys are bits of instants >= 0, which order alike."""

    key: Cells
    tie: Cells
    item: Cells
    size: Int[jax.Array, ""]


class Records(NamedTuple):
    """Per request; NaN or -1 where it did not happen. The last entry is spare."""

    arrival_ms: Float[jax.Array, " entries"]
    admit_ms: Float[jax.Array, " entries"]
    first_ms: Float[jax.Array, " entries"]
    second_ms: Float[jax.Array, " entries"]
    last_ms: Float[jax.Array, " entries"]
    terminal_ms: Float[jax.Array, " entries"]
    prefill_admit_ms: Float[jax.Array, " entries"]
    held_ms: Float[jax.Array, " entries"]
    reserved_ms: Float[jax.Array, " entries"]
    activated_ms: Float[jax.Array, " entries"]
    decode_admit_ms: Float[jax.Array, " entries"]
    released_ms: Float[jax.Array, " entries"]
    status: Int[jax.Array, " entries"]
    output: Int[jax.Array, " entries"]
    first_reuse: Int[jax.Array, " entries"]
    reuse: Cells
    rank: Cells  # last pool
    source: Cells  # prefill rank


class Logs(NamedTuple):
    """Fixed-capacity logs; counts may exceed the capacity, which stops the run."""

    pass_ms: Float[jax.Array, "passes two"]
    pass_counts: Int[jax.Array, "passes seven"]
    token_ms: Float[jax.Array, " tokens"]
    admission_ms: Float[jax.Array, " admissions"]
    admission: Int[jax.Array, "admissions three"]
    passes: Int[jax.Array, ""]
    admissions: Int[jax.Array, ""]


class Actions(NamedTuple):
    """Ring of hand-over actions in order, and those put off until a pass ends."""

    ring: Cells
    start: Int[jax.Array, ""]
    end: Int[jax.Array, ""]
    deferred: Cells
    deferred_start: Int[jax.Array, ""]
    deferred_end: Int[jax.Array, ""]


class Loop(NamedTuple):
    """Where the event loop stands. chain: worker whose pass took no time, or -1."""

    now_ms: Float[jax.Array, ""]
    phase: Int[jax.Array, ""]
    worker: Int[jax.Array, ""]
    chain: Int[jax.Array, ""]
    changed: Int[jax.Array, ""]
    status: Int[jax.Array, ""]
    released: Int[jax.Array, ""]
    placed: Int[jax.Array, ""]
    destined: Int[jax.Array, ""]
    in_flight: Int[jax.Array, ""]
    inserted: Int[jax.Array, ""]
    events: Int[jax.Array, ""]
    preemptions: Int[jax.Array, ""]
    prefill_tokens: Int[jax.Array, ""]


class World(NamedTuple):
    """Everything that changes."""

    blocks: Blocks
    seqs: Sequences
    ranks: Ranks
    workers: Workers
    arrivals: Heap
    tokenized: Heap
    transfers: Heap
    servers_ms: Float[jax.Array, "workers servers"]
    seats: Cells  # reqs: worker or rank that a tokenized request goes to
    actions: Actions
    records: Records
    logs: Logs
    loop: Loop


def _heap(capacity: int) -> Heap:
    return Heap(
        cells(capacity, 0, "int64"),
        cells(capacity, 0, "int64"),
        cells(capacity, 0),
        jnp.int32(0),
    )


def _fresh_blocks(shape: BlockShape, lane: BlockLane) -> Blocks:
    ranks, size = shape.ranks, shape.ranks * shape.blocks
    places = jnp.arange(size + ranks + 1, dtype=jnp.int32)
    chain = jnp.where(places < size, places + 1, places)
    pools = lane.places.pool_of_rank
    free = jnp.append(lane.limits.blocks[pools], 0).astype(jnp.int32)
    heads = jnp.arange(ranks + 1, dtype=jnp.int32) * shape.blocks
    return Blocks(
        free=Cells(free),
        idle=cells(ranks, 0),
        releases=cells(ranks, 0),
        free_head=Cells(heads),
        users=cells(size, 0),
        key=cells(size, -1),
        older=Cells(jnp.where(places < size, -1, places)),
        newer=Cells(chain),
        copy_before=cells(size, -1),
        copy_after=cells(size, -1),
        first=cells(ranks * shape.ids, -1),
        held=cells(shape.rows, -1),
        stored=cells(ranks, 0),
        removed=cells(ranks, 0),
    )


def fresh_world(shape: BlockShape, lane: BlockLane) -> World:
    """Nothing has arrived; every worker is idle."""
    jobs, ranks, reqs = shape.pools * shape.reqs, shape.ranks, shape.reqs
    never = jnp.full(shape.workers, jnp.inf)
    nan = jnp.full(reqs + 1, NAN)
    none = jnp.zeros(reqs + 1, jnp.int32)
    zero = jnp.int32(0)
    handed = shape.actions if shape.pools > 1 else 1
    isl = jnp.tile(lane.traffic.isl, shape.pools)
    return World(
        blocks=_fresh_blocks(shape, lane),
        seqs=Sequences(
            length=Cells(jnp.append(isl, 0)),
            computed=cells(jobs, 0),
            blocks=cells(jobs, 0),
            published=cells(jobs, 0),
            taken=cells(jobs, 0),
            admissions=cells(jobs, 0),
            built=cells(jobs, 0),
            order=cells(jobs, 0),
            link=cells(jobs, -1),
        ),
        ranks=Ranks(
            slots=cells(ranks * shape.slots, -1),
            running=cells(ranks, 0),
            waiting=cells(ranks, -1),
            waiting_end=cells(ranks, -1),
            asking=cells(ranks, -1),
            asking_end=cells(ranks, -1),
            ended=cells(ranks, -1),
            ended_end=cells(ranks, -1),
            held=cells(ranks, -1),
            held_end=cells(ranks, -1),
            asked=cells(ranks, 0),
            refused_at=cells(ranks, -1),
            promised=cells(ranks, 0),
            bound=cells(ranks, 0),
            drawn=cells(ranks, 0),
            peak=cells(ranks, 0),
            stored=cells(ranks, 0),
            removed=cells(ranks, 0),
        ),
        workers=Workers(
            end_ms=never,
            planned_end_ms=never,
            extra=cells(shape.workers, 0),
            contexts=cells(shape.workers, 0),
            group_pass=cells(shape.workers, 0),
            next_rank=cells(shape.workers, 0),
            prefill_tokens=cells(shape.workers, 0),
            busy_ms=jnp.zeros(shape.workers),
        ),
        arrivals=_heap(reqs),
        tokenized=_heap(reqs if shape.servers else 1),
        transfers=_heap(reqs if shape.pools > 1 else 1),
        servers_ms=jnp.broadcast_to(
            jnp.where(
                jnp.arange(max(shape.servers, 1)) < lane.traffic.servers, 0.0, jnp.inf
            ),
            (shape.workers, max(shape.servers, 1)),
        ),
        seats=cells(reqs if shape.servers else 1, 0),
        actions=Actions(cells(handed, 0), zero, zero, cells(handed, 0), zero, zero),
        records=Records(
            *([nan] * 12),
            status=none,
            output=none,
            first_reuse=none,
            reuse=cells(reqs, 0),
            rank=cells(reqs, -1),
            source=cells(reqs, -1),
        ),
        logs=Logs(
            jnp.zeros((shape.passes + 1, 2)),
            jnp.zeros((shape.passes + 1, 7), jnp.int32),
            jnp.zeros(shape.tokens + 1),
            jnp.zeros(shape.admissions + 1),
            jnp.zeros((shape.admissions + 1, 3), jnp.int32),
            zero,
            zero,
        ),
        loop=Loop(
            now_ms=jnp.float64(0.0),
            phase=zero,
            worker=zero,
            chain=jnp.int32(-1),
            changed=zero,
            status=zero,
            released=zero,
            placed=zero,
            destined=zero,
            in_flight=zero,
            inserted=zero,
            events=zero,
            preemptions=zero,
            prefill_tokens=zero,
        ),
    )


def blocks_for(tokens: Int[Array, ""], block_size: Int[Array, ""]) -> Int[Array, ""]:
    """Blocks that hold `tokens`: ceil(tokens / block_size)."""
    return whole(tokens + block_size - 1, block_size)


def whole(a: Int[Array, ""], b: Int[Array, ""]) -> Int[Array, ""]:
    """floor(a / b) of counts >= 0."""
    return jnp.asarray(a // b, jnp.int32)
