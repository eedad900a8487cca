"""Branches and loops over a large record that carry only what they touch.

XLA moves every operand of a branch and every carried value of a loop on its own, and
copies arrays that it cannot prove untouched. Here a step is traced once, and leaves that
it returns as they came stay outside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jaxtyping import Bool

from .._arrays import Array
from ._block_cells import _after_reads as after_reads


class _Traced(NamedTuple):
    """A step over flat leaves: its program and which of its inputs it returns as is."""

    program: ClosedJaxpr
    kept: tuple[int, ...]  # for each output the input that it is, or -1
    tree: Any


def view(state: Any) -> Any:
    """The same for reading within a branch or loop."""
    return jax.tree.map(lambda leaf: leaf, state)


def _trace(step: Callable[[Any], Any], leaves: list[Any], tree: Any) -> _Traced:
    trees = []

    def flat(*leaves: Any) -> list[Any]:
        out, out_tree = jax.tree.flatten(step(jax.tree.unflatten(tree, leaves)))
        trees.append(out_tree)
        return out

    program = jax.make_jaxpr(flat)(*leaves)
    inputs = program.jaxpr.invars
    place = {id(var): i for i, var in enumerate(inputs)}
    kept = tuple(place.get(id(var), -1) for var in program.jaxpr.outvars)
    return _Traced(program, kept, trees[0])


def pick(
    flag: Bool[Array, ""],
    yes: Callable[[Any], Any],
    no: Callable[[Any], Any],
    state: Any,
) -> Any:
    """Values that `yes(state)` or `no(state)` finds; neither changes the state."""
    flag = after_reads(flag, state)
    leaves, tree = jax.tree.flatten(state)
    fresh = jax.tree.unflatten(tree, leaves)
    return jax.lax.cond(flag, lambda: yes(view(fresh)), lambda: no(view(fresh)))


def when(flag: Bool[Array, ""], change: Callable[[Any], Any], state: Any) -> Any:
    """`change(state)` if `flag`, else the state.

    The change is the true branch: XLA copies arrays that a false branch changes, or that
    both branches do.
    """
    flag = after_reads(flag, state)
    leaves, tree = jax.tree.flatten(state)
    traced = _trace(change, leaves, tree)
    wanted = [i for i, kept in enumerate(traced.kept) if kept != i]

    def changed() -> list[Any]:
        out = jaxpr_as_fun(traced.program)(*leaves)
        return [out[i] for i in wanted]

    out = iter(jax.lax.cond(flag, changed, lambda: [leaves[i] for i in wanted]))
    merged = [next(out) if i in set(wanted) else leaf for i, leaf in enumerate(leaves)]
    return jax.tree.unflatten(tree, merged)


def repeat(
    going: Callable[[Any], Bool[Array, ""]], step: Callable[[Any], Any], state: Any
) -> Any:
    """`lax.while_loop` of a step over a state."""
    ordered = after_reads(True, state)
    leaves, tree = jax.tree.flatten(state)
    traced = _trace(step, leaves, tree)
    carried = [i for i, kept in enumerate(traced.kept) if kept != i]

    def filled(some: list[Any]) -> list[Any]:
        full = list(leaves)
        for i, leaf in zip(carried, some, strict=True):
            full[i] = leaf
        return full

    def goes(carry: Any) -> Any:
        return carry[0] & going(jax.tree.unflatten(tree, filled(carry[1])))

    def body(carry: Any) -> Any:
        out = jaxpr_as_fun(traced.program)(*filled(carry[1]))
        return carry[0], [out[i] for i in carried]

    start = ordered, [leaves[i] for i in carried]
    return jax.tree.unflatten(tree, filled(jax.lax.while_loop(goes, body, start)[1]))


def each(first: Any, last: Any, step: Callable[[Any, Any], Any], state: Any) -> Any:
    """step(i, state) for i in first .. last - 1."""

    def one(carry: Any) -> Any:
        i, state = carry
        return i + 1, step(i, state)

    start = jnp.asarray(first, jnp.int32), state
    return repeat(lambda carry: carry[0] < last, one, start)[1]
