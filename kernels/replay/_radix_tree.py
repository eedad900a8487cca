"""The radix tree of cached pages: walk, split, lock, grow, evict."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Bool, Int

from .._arrays import Array
from ._radix_branch import pick, repeat, view, when
from ._radix_state import RadixLoad, RadixShape, Tree, at, put, put_where, seen


I32 = Int[Array, ""]
NEVER = jnp.iinfo(jnp.int64).max


def same_page(
    shape: RadixShape, load: RadixLoad, one: I32, other: I32, depth: I32
) -> Bool[Array, ""]:
    """Whether two sequences agree up to the end of page `depth`."""
    if not shape.pages:
        return one == other
    page = at(load.ids, at(load.start, one) + depth)
    return page == at(load.ids, at(load.start, other) + depth)


def common_pages(
    shape: RadixShape, load: RadixLoad, one: I32, other: I32, low: I32, high: I32
) -> I32:
    """Common prefix, known to lie in low .. high: agreement is monotone in depth."""
    if not shape.pages:
        return high

    def narrow(state):
        low, high = state
        middle = (low + high + 1) // 2
        agree = same_page(shape, load, one, other, middle - 1)
        return jnp.where(agree, middle, low), jnp.where(agree, high, middle - 1)

    return repeat(lambda state: state[0] < state[1], narrow, (low, high))[0]


def descend(
    shape: RadixShape, load: RadixLoad, tree: Tree, row: I32, node: I32, limit: I32
) -> tuple[I32, I32]:
    """Deepest node that the sequence enters below a fully matched one, and the depth."""

    def enter(state):
        node, depth, _ = state
        inside = view(tree)
        child = repeat(
            lambda c: (
                (c >= 0)
                & ~same_page(
                    shape, load, at(view(tree).owner, jnp.maximum(c, 0)), row, depth
                )
            ),
            lambda c: at(view(tree).after, c),
            at(inside.child, node),
        )
        found = child >= 0
        into = jnp.maximum(child, 0)
        high = jnp.minimum(at(inside.end, into), limit)
        low = jnp.minimum(depth + 1, high)
        reached = common_pages(shape, load, at(inside.owner, into), row, low, high)
        reached = jnp.where(found, reached, depth)
        further = found & (reached == at(inside.end, into)) & (reached < limit)
        return jnp.where(found, child, node), reached, further

    depth = at(tree.end, node)
    node, depth, _ = repeat(lambda state: state[2], enter, (node, depth, depth < limit))
    seen(node, tree.owner, tree.end, tree.child, tree.after)
    return node, depth


def _spare(tree: Tree) -> tuple[Tree, I32]:
    none_left = tree.spares <= 0
    last = jnp.maximum(tree.spares - 1, 0)
    return tree._replace(spares=last, full=tree.full | none_left), at(tree.spare, last)


def split(tree: Tree, node: I32, depth: I32) -> tuple[Tree, I32]:
    """Cut an edge in two; the answer is the upper part."""
    tree, upper = _spare(tree)
    parent, before, after = (
        at(tree.parent, node), at(tree.before, node), at(tree.after, node)
    )  # fmt: skip
    tree = tree._replace(
        owner=put(tree.owner, upper, at(tree.owner, node)),
        end=put(tree.end, upper, depth),
        parent=put(put(tree.parent, upper, parent), node, upper),
        child=put_where(
            before < 0, put(tree.child, upper, node), jnp.maximum(parent, 0), upper
        ),
        before=put_where(
            after >= 0, put(put(tree.before, upper, before), node, -1), after, upper
        ),
        after=put_where(
            before >= 0, put(put(tree.after, upper, after), node, -1), before, upper
        ),
        locks=put(tree.locks, upper, at(tree.locks, node)),
        home=put(tree.home, upper, at(tree.home, node)),
        stamp=put(tree.stamp, upper, at(tree.stamp, node)),
    )
    return tree, upper


def split_within(tree: Tree, node: I32, depth: I32) -> tuple[Tree, I32]:
    """The node that ends at `depth`, which lies on its edge."""
    return when(
        depth < at(tree.end, node), lambda carry: split(*carry, depth), (tree, node)
    )


def add_leaf(tree: Tree, parent: I32, row: I32, end: I32) -> tuple[Tree, I32]:
    """A new unlocked edge below `parent`."""
    tree, leaf = _spare(tree)
    sibling = at(tree.child, parent)
    tree = tree._replace(
        owner=put(tree.owner, leaf, row),
        end=put(tree.end, leaf, end),
        parent=put(tree.parent, leaf, parent),
        child=put(put(tree.child, leaf, -1), parent, leaf),
        after=put(tree.after, leaf, sibling),
        before=put_where(sibling >= 0, put(tree.before, leaf, -1), sibling, leaf),
        locks=put(tree.locks, leaf, 0),
        home=put(tree.home, leaf, at(tree.home, parent)),
        stamp=put(tree.stamp, leaf, tree.clock),
    )
    return tree, leaf


def lock_path(
    tree: Tree, node: I32, top: I32, by: int, stamp: Int[Array, ""]
) -> tuple[Tree, I32]:
    """Add `by` to the locks from `node` up to below `top`, and mark the use.

    Also the pages that became locked (by = 1) or unlocked (by = -1).
    """

    def one(state):
        tree, node, pages = state
        parent = at(tree.parent, node)
        old = at(tree.locks, node)
        turned = (old if by > 0 else old + by) == 0
        length = at(tree.end, node) - at(tree.end, parent)
        tree = tree._replace(
            locks=put(tree.locks, node, old + by),
            stamp=put(tree.stamp, node, jnp.maximum(at(tree.stamp, node), stamp)),
        )
        return tree, parent, pages + jnp.where(turned, length, 0)

    tree, _, pages = repeat(
        lambda state: state[1] != top, one, (tree, node, jnp.int32(0))
    )
    return tree, pages


def _remove(tree: Tree, leaf: I32) -> Tree:
    parent, before, after = (
        at(tree.parent, leaf), at(tree.before, leaf), at(tree.after, leaf)
    )  # fmt: skip
    return tree._replace(
        child=put_where(before < 0, tree.child, parent, after),
        after=put_where(before >= 0, tree.after, before, after),
        before=put_where(after >= 0, tree.before, after, before),
        parent=put(tree.parent, leaf, -1),
        locks=put(tree.locks, leaf, 1),
        spare=put(tree.spare, tree.spares, leaf),
        spares=tree.spares + 1,
    )


def _oldest(tree: Tree, rank: I32) -> tuple[I32, I32]:
    """The unlocked leaf of a rank with the oldest stamp; 1 if there is one, else 0."""
    open_leaf = (tree.child.values < 0) & (tree.locks.values == 0)
    open_leaf &= tree.home.values == rank
    age = jnp.where(open_leaf, tree.stamp.values, NEVER)
    leaf = jnp.argmin(age).astype(jnp.int32)
    return leaf, (age[leaf] < NEVER).astype(jnp.int32)


def evict(tree: Tree, rank: I32, pages: I32) -> tuple[Tree, I32]:
    """Remove pages from the tails of unlocked leaves, the longest unused first."""

    def trim(state):
        tree, removed, _ = state
        zero = jnp.int32(0)
        # A branch of its own is read before what follows changes the arrays.
        leaf, found = pick(
            removed < pages, lambda t: _oldest(t, rank), lambda _: (zero, zero), tree
        )
        seen(leaf + found, tree.child, tree.locks, tree.home, tree.stamp)
        length = at(tree.end, leaf) - at(tree.end, at(tree.parent, leaf))
        cut = jnp.where(found > 0, jnp.minimum(length, pages - removed), 0)
        tree = tree._replace(end=put(tree.end, leaf, at(tree.end, leaf) - cut))
        gone = (found > 0) & (cut == length)
        tree = when(gone, lambda t: _remove(t, leaf), tree)
        return tree, removed + cut, found

    tree, removed, _ = repeat(
        lambda state: (state[2] > 0) & (state[1] < pages),
        trim,
        (tree, jnp.int32(0), jnp.int32(1)),
    )
    return tree, removed


def grow(
    shape: RadixShape, load: RadixLoad, tree: Tree, row: I32, node: I32, full: I32
) -> tuple[Tree, I32, I32, I32]:
    """Store the pages of a sequence below the node that it has locked.

    Returns (tree, node that ends it, depth that was known before, pages that became
    locked). A leaf that nobody else holds grows; anything else gets a child.
    """
    own = node
    found, known = descend(shape, load, tree, row, node, full)
    tree = tree._replace(clock=tree.clock + 2)

    def mark(state):
        tree, node = state
        stamp = put(tree.stamp, node, tree.clock - 1)
        return tree._replace(stamp=stamp), at(tree.parent, node)

    tree, _ = repeat(lambda state: state[1] != own, mark, (tree, found))
    tree, found = split_within(tree, found, known)
    holds = jnp.where(found == own, 1, 0)
    is_root = at(tree.parent, found) < 0
    alone = (at(tree.locks, found) == holds) & (at(tree.child, found) < 0) & ~is_root
    fresh = known < full

    longer = fresh & alone
    tree = tree._replace(
        end=put_where(longer, tree.end, found, full),
        owner=put_where(longer, tree.owner, found, row),
    )
    tree, last = when(
        fresh & ~alone, lambda carry: add_leaf(*carry, row, full), (tree, found)
    )
    tree, locked = lock_path(tree, last, own, 1, tree.clock)
    # What has just been stored was not evictable before.
    return tree, last, known, locked - jnp.where(last == own, 0, full - known)
