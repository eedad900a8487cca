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
from ._block_cells import Cells
from ._block_cells import _after_reads as after_reads


class _Parts(NamedTuple):
    """A state as a list of parts (cells or arrays) and of their arrays."""

    parts: list[Any]
    arrays: list[Any]
    tree: Any


class _Traced(NamedTuple):
    """A step over arrays: its program, the outputs that differ from the inputs, and the
    cells that it reads although they come out as they were."""

    program: ClosedJaxpr
    changed: list[int]
    read: list[int]


def _is_cells(leaf: Any) -> bool:
    return isinstance(leaf, Cells)


def _parts(state: Any) -> _Parts:
    parts, tree = jax.tree.flatten(state, is_leaf=_is_cells)
    return _Parts(parts, [p.values if _is_cells(p) else p for p in parts], tree)


def view(state: Any) -> Any:
    """The same for reading within a branch or loop; see `seen`."""
    return jax.tree.map(lambda leaf: leaf, state)


def _trace(step: Callable[[Any], Any], state: _Parts) -> _Traced:
    def flat(*arrays: Any) -> list[Any]:
        return _parts(step(_rebuilt(state, list(arrays)))).arrays

    program = jax.make_jaxpr(flat)(*state.arrays)
    inputs, outputs = program.jaxpr.invars, program.jaxpr.outvars
    pairs = enumerate(zip(inputs, outputs, strict=True))
    changed = [i for i, (one, other) in pairs if one is not other]
    used = {id(var) for eqn in program.jaxpr.eqns for var in eqn.invars}
    read = [
        i
        for i, var in enumerate(inputs)
        if i not in set(changed) and id(var) in used and _is_cells(state.parts[i])
    ]
    return _Traced(program, changed, read)


def _run(traced: _Traced, arrays: list[Any]) -> list[Any]:
    """Outputs of a step, changed ones first; the barrier keeps those that it only reads
    from being taken out of the operation again."""
    out = jaxpr_as_fun(traced.program)(*arrays)
    read = [out[i] for i in traced.read]
    kept = jax.lax.optimization_barrier(read) if read else []
    return [out[i] for i in traced.changed] + list(kept)


def _rebuilt(state: _Parts, arrays: list[Any]) -> Any:
    parts = [
        Cells(array) if _is_cells(part) else array
        for part, array in zip(state.parts, arrays, strict=True)
    ]
    return jax.tree.unflatten(state.tree, parts)


def _outcome(state: _Parts, traced: _Traced, news: list[Any]) -> Any:
    """The state after an operation; what nobody touched is the same object."""
    parts = list(state.parts)
    for i, new in zip(traced.changed + traced.read, news, strict=True):
        parts[i] = Cells(new) if _is_cells(parts[i]) else new
    return jax.tree.unflatten(state.tree, parts)


def pick(
    flag: Bool[Array, ""],
    yes: Callable[[Any], Any],
    no: Callable[[Any], Any],
    state: Any,
) -> Any:
    """Values that `yes(state)` or `no(state)` finds; neither changes the state."""
    flag = after_reads(flag, state)
    return jax.lax.cond(flag, lambda: yes(view(state)), lambda: no(view(state)))


def when(flag: Bool[Array, ""], change: Callable[[Any], Any], state: Any) -> Any:
    """`change(state)` if `flag`, else the state.

    The change is the true branch: XLA copies arrays that a false branch changes, or that
    both branches do.
    """
    flag = after_reads(flag, state)
    parts = _parts(state)
    traced = _trace(change, parts)
    kept = [parts.arrays[i] for i in traced.changed + traced.read]
    news = jax.lax.cond(flag, lambda: _run(traced, parts.arrays), lambda: kept)
    return _outcome(parts, traced, news)


def repeat(
    going: Callable[[Any], Bool[Array, ""]], step: Callable[[Any], Any], state: Any
) -> Any:
    """`lax.while_loop` of a step over a state."""
    ordered = after_reads(True, state)
    parts = _parts(state)
    traced = _trace(step, parts)
    carried = traced.changed + traced.read

    def filled(some: list[Any]) -> list[Any]:
        full = list(parts.arrays)
        for i, array in zip(carried, some, strict=True):
            full[i] = array
        return full

    def goes(carry: Any) -> Any:
        return carry[0] & going(_rebuilt(parts, filled(carry[1])))

    def body(carry: Any) -> Any:
        return carry[0], _run(traced, filled(carry[1]))

    start = ordered, [parts.arrays[i] for i in carried]
    news = jax.lax.while_loop(goes, body, start)[1]
    return _outcome(parts, traced, news)


def each(first: Any, last: Any, step: Callable[[Any, Any], Any], state: Any) -> Any:
    """step(i, state) for i in first .. last - 1."""

    def one(carry: Any) -> Any:
        i, state = carry
        return i + 1, step(i, state)

    start = jnp.asarray(first, jnp.int32), state
    return repeat(lambda carry: carry[0] < last, one, start)[1]
