"""Records of a replay; positions beyond the capacity are counted, not written."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from .._arrays import Array
from ._radix_branch import when
from ._radix_state import RadixShape, RadixState, at, put_where


I32 = Int[Array, ""]


def log_admission(
    shape: RadixShape, state: RadixState, row: I32, reuse: I32, keep: Bool[Array, ""]
) -> RadixState:
    """An admission at the start of this pass."""
    if not shape.admissions:
        return state
    logs = state.logs
    place = logs.admissions
    return state._replace(
        logs=logs._replace(
            admissions=place + jnp.where(keep, 1, 0),
            admitted=put_where(keep, logs.admitted, place, row),
            admitted_ms=put_where(keep, logs.admitted_ms, place, state.now),
            admitted_reuse=put_where(keep, logs.admitted_reuse, place, reuse),
        )
    )


def _log_join(
    state: RadixState,
    row: I32,
    joined: I32,
    left: I32,
    at_ms: Float[Array, ""],
    keep: Bool[Array, ""],
) -> RadixState:
    logs = state.logs
    place = logs.joins
    return state._replace(
        logs=logs._replace(
            joins=place + jnp.where(keep, 1, 0),
            join_row=put_where(keep, logs.join_row, place, row),
            join_pass=put_where(keep, logs.join_pass, place, joined),
            leave_pass=put_where(keep, logs.leave_pass, place, left),
            join_ms=put_where(keep, logs.join_ms, place, at_ms),
        )
    )


def log_leave(
    shape: RadixShape, state: RadixState, rank: I32, row: I32, keep: Bool[Array, ""]
) -> RadixState:
    """A running request leaves; it took part in runs joined .. leave - 1."""
    if not shape.joins:
        return state
    left = at(state.ranks.decode_passes, rank)
    joined = at(state.live.joined, row)
    return _log_join(state, row, joined, left, jnp.float64(0.0), keep)


def log_token(
    shape: RadixShape, state: RadixState, row: I32, at_ms: Float[Array, ""]
) -> RadixState:
    """A token that a prefill pass emitted."""
    if not shape.joins:
        return state
    none = jnp.int32(-1)
    return _log_join(state, row, none, none, at_ms, jnp.bool_(True))


def log_pass(shape: RadixShape, state: RadixState, rank: I32) -> RadixState:
    """What one rank did in the pass, unless nothing."""
    if not shape.passes:
        return state
    ranks, this = state.ranks, state.this
    counts = jnp.concatenate(
        [
            jnp.stack([rank.astype(jnp.int32), this.passes]),
            ranks.prefill_query[rank],
            ranks.decode_query[rank],
        ]
    )

    def write(state):
        logs = state.logs
        place, keep = logs.passes, jnp.bool_(True)
        rows = logs.pass_counts.at[place].set(counts, mode="drop")
        return state._replace(
            logs=logs._replace(
                passes=place + 1,
                pass_start_ms=put_where(keep, logs.pass_start_ms, place, state.now),
                pass_end_ms=put_where(
                    keep, logs.pass_end_ms, place, at(ranks.own_end_ms, rank)
                ),
                pass_seen_ms=put_where(keep, logs.pass_seen_ms, place, this.end_ms),
                pass_counts=rows,
            )
        )

    return when((counts[2] > 0) | (counts[5] > 0), write, state)
