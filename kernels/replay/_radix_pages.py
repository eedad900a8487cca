"""Pages of one rank: room, storage in the tree, release; with or without a tree."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Int

from .._arrays import Array
from ._radix_branch import when
from ._radix_state import (
    RadixEngine,
    RadixLoad,
    RadixShape,
    RadixState,
    Transfer,
    at,
    put,
    seen,
)
from ._radix_tree import descend, evict, grow, lock_path, split_within
from ._timing import Steps


I32 = Int[Array, ""]


class Scene(NamedTuple):
    """What does not change during a replay; `engine` is of the rank that is looked at."""

    shape: RadixShape
    load: RadixLoad
    engine: RadixEngine
    steps: Steps
    prefill: RadixEngine | None = None
    transfer: Transfer | None = None

    def of_rank(self, rank: I32) -> Scene:
        """The scene with the limits of this rank."""
        return self._of_pool(rank < self.shape.source_ranks)

    def of_worker(self, worker: I32) -> Scene:
        """The scene with the limits of this worker's ranks."""
        return self._of_pool(worker < self.shape.prefill_workers)

    def _of_pool(self, source: Any) -> Scene:
        if self.prefill is None:
            return self
        engine = jax.tree.map(
            lambda prefill, decode: jnp.where(source, prefill, decode),
            self.prefill,
            self.engine,
        )
        return self._replace(engine=engine, prefill=None)


def ceil_div(value: I32, by: I32) -> I32:
    """Rounded up."""
    return (value + by - 1) // by


def available(state: RadixState, rank: I32) -> I32:
    """Free and evictable pages."""
    return at(state.ranks.free, rank) + at(state.ranks.evictable, rank)


def make_room(
    scene: Scene, state: RadixState, rank: I32, pages: I32
) -> tuple[RadixState, Bool[Array, ""]]:
    """Evict until so many pages are free, as far as possible; whether they are."""

    def make(state):
        short = pages - at(state.ranks.free, rank)
        if scene.shape.nodes:
            tree, removed = evict(state.tree, rank, short)
            state = state._replace(tree=tree)
        else:
            removed = jnp.minimum(short, at(state.ranks.evictable, rank))
        ranks = state.ranks._replace(
            free=state.ranks.free.at[rank].add(removed),
            evictable=state.ranks.evictable.at[rank].add(-removed),
        )
        totals = state.totals._replace(
            evicted_pages=state.totals.evicted_pages + removed
        )
        return state._replace(ranks=ranks, totals=totals)

    state = when(at(state.ranks.free, rank) < pages, make, state)
    return state, at(state.ranks.free, rank) >= pages


def take_pages(scene: Scene, state: RadixState, rank: I32, pages: I32) -> RadixState:
    """Use free pages."""
    ranks = state.ranks._replace(free=state.ranks.free.at[rank].add(-pages))
    state = state._replace(ranks=ranks)
    used = scene.engine.pages - available(state, rank)
    peak = jnp.maximum(state.totals.peak_pages, used)
    return state._replace(totals=state.totals._replace(peak_pages=peak))


def matched_pages(
    scene: Scene, state: RadixState, rank: I32, row: I32, *, whole: bool = False
) -> tuple[I32, I32]:
    """Node and length of the cached prefix; one token is left to compute, if any is.

    whole: nothing is left to compute.
    """
    root = rank.astype(jnp.int32)
    if not scene.shape.nodes:
        return root, jnp.int32(0)
    load, live = scene.load, state.live
    length = at(load.isl, row) + at(live.generated, row)
    usable = length
    if not whole:
        usable = length - jnp.where(at(load.osl, row) > 0, 1, 0)
    return descend(
        scene.shape, load, state.tree, row, root, usable // scene.engine.page
    )


def looked_up(state: RadixState, result: I32) -> None:
    """A look-up of a match, in a branch, gave the result: changes come after it."""
    tree, live = state.tree, state.live
    seen(
        result, tree.owner, tree.end, tree.child, tree.after, live.node, live.generated
    )


def pin(
    scene: Scene, state: RadixState, rank: I32, row: I32, node: I32, pages: I32
) -> RadixState:
    """Use and lock a match."""
    if scene.shape.nodes:
        tree = state.tree._replace(clock=state.tree.clock + 1)
        # The whole edge in which the match ends counts as used, before it is split.
        tree = tree._replace(
            stamp=put(
                tree.stamp,
                node,
                jnp.where(at(tree.parent, node) < 0, at(tree.stamp, node), tree.clock),
            )
        )
        is_root = at(tree.parent, node) < 0
        tree, node = when(
            ~is_root, lambda carry: split_within(*carry, pages), (tree, node)
        )
        tree, locked = lock_path(tree, node, rank.astype(jnp.int32), 1, tree.clock)
        ranks = state.ranks._replace(
            evictable=state.ranks.evictable.at[rank].add(-locked)
        )
        state = state._replace(tree=tree, ranks=ranks)
    live = state.live
    if scene.shape.nodes:
        live = live._replace(node=put(live.node, row, node))
    live = live._replace(
        cached=put(live.cached, row, pages),
        owned=put(live.owned, row, pages * scene.engine.page),
    )
    return state._replace(live=live)


def store(scene: Scene, state: RadixState, rank: I32, row: I32) -> RadixState:
    """Cache the full pages of what is computed; pages that were there already go back."""
    live = state.live
    full = jnp.where(scene.engine.caching, at(live.owned, row) // scene.engine.page, 0)

    def put_in(state):
        live, ranks = state.live, state.ranks
        if scene.shape.nodes:
            tree, node, known, locked = grow(
                scene.shape, scene.load, state.tree, row, at(live.node, row), full
            )
            again = known - at(live.cached, row)
            ranks = ranks._replace(
                free=ranks.free.at[rank].add(again),
                evictable=ranks.evictable.at[rank].add(-locked),
            )
            live = live._replace(node=put(live.node, row, node))
            state = state._replace(tree=tree, ranks=ranks)
        return state._replace(live=live._replace(cached=put(live.cached, row, full)))

    state = when(full > at(live.cached, row), put_in, state)
    clock = state.tree.clock + 1
    return state._replace(
        tree=state.tree._replace(clock=clock),
        live=state.live._replace(used=put(state.live.used, row, clock)),
    )


def release(scene: Scene, state: RadixState, rank: I32, row: I32) -> RadixState:
    """Give up all pages; the cached ones stay, last used when they were stored."""
    live = state.live
    own = ceil_div(at(live.owned, row), scene.engine.page) - at(live.cached, row)
    if scene.shape.nodes:
        tree, unlocked = lock_path(
            state.tree,
            at(live.node, row),
            rank.astype(jnp.int32),
            -1,
            at(live.used, row),
        )
        state = state._replace(tree=tree)
    else:
        unlocked = at(live.cached, row)
    ranks = state.ranks._replace(
        free=state.ranks.free.at[rank].add(own),
        evictable=state.ranks.evictable.at[rank].add(unlocked),
    )
    zero = jnp.int32(0)
    live = live._replace(
        owned=put(live.owned, row, zero),
        cached=put(live.cached, row, zero),
        admitted=put(live.admitted, row, False),
    )
    return state._replace(ranks=ranks, live=live)
