"""Arrays of a loop carry that a scalar program reads and writes one element at a time.

XLA updates an element of a carried array in place only if every earlier read of the array
is an ancestor of the update; else it copies the whole array. Reads therefore pass through
an operation that is never fused into its users (a remainder that changes nothing), and
every update, branch or loop is made to depend on the reads before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Int

from .._arrays import Array


State = TypeVar("State")
Index = Int[Array, ""] | int
NEVER = {jnp.dtype("int32"): -(2**31), jnp.dtype("int64"): -(2**63)}


def _depends(reads: Sequence[Array]) -> Bool[Array, ""]:
    """True, by way of all reads: no cell ever holds the least integer."""
    return reduce(
        lambda flag, read: flag & (read != NEVER[read.dtype]), reads, jnp.bool_(True)
    )


@jax.tree_util.register_pytree_node_class
class Cells:
    """Integers above the least one of their type; the last cell is spare.

    A change makes new cells; the old ones must not be read again.
    """

    def __init__(self, values: Any, reads: list[Array] | None = None):
        self.values = values
        self.reads: list[Array] = [] if reads is None else reads

    def tree_flatten(self):
        return (self.values,), None

    @classmethod
    def tree_unflatten(cls, aux, children):
        return cls(children[0])

    def __getitem__(self, at: Index) -> Array:
        """The value at a place >= 0; places outside read the nearest cell."""
        value = jax.lax.dynamic_index_in_dim(
            self.values, jnp.maximum(at, 0), keepdims=False
        )
        whole = jax.lax.rem(value, jnp.asarray(jnp.iinfo(value.dtype).max, value.dtype))
        self.reads.append(whole)
        return whole

    def put(self, at: Index, value: Any, when: Any = True) -> Cells:
        """These cells with one value changed, if `when`."""
        spare = self.values.shape[0] - 1
        wanted = when & _depends(self.reads) if self.reads else when
        place = at if wanted is True else jnp.where(wanted, at, spare)
        update = jnp.asarray(value).astype(self.values.dtype)
        return Cells(jax.lax.dynamic_update_index_in_dim(self.values, update, place, 0))

    def add(self, at: Index, value: Any, when: Any = True) -> Cells:
        """These cells with one value increased, if `when`."""
        return self.put(at, self[at] + value, when)


def cells(size: int, value: int, dtype: Any = "int32") -> Cells:
    """`size` usable cells that hold `value`."""
    return Cells(jnp.full(size + 1, value, dtype))


def _is_cells(leaf: Any) -> bool:
    return isinstance(leaf, Cells)


def _after_reads(flag: Any, state: Any) -> Bool[Array, ""]:
    leaves = jax.tree.leaves(state, is_leaf=_is_cells)
    reads = [r for leaf in leaves if isinstance(leaf, Cells) for r in leaf.reads]
    return jnp.asarray(flag) & _depends(reads) if reads else jnp.asarray(flag)


def when(
    flag: Bool[Array, ""], change: Callable[[State], State], state: State
) -> State:
    """`change(state)` if `flag`, else the state."""
    return choose(flag, change, lambda state: state, state)


def choose(
    flag: Bool[Array, ""],
    yes: Callable[[State], Any],
    no: Callable[[State], Any],
    state: State,
) -> Any:
    """`lax.cond` of one operand that may hold cells."""
    return jax.lax.cond(_after_reads(flag, state), yes, no, state)


def repeat(
    going: Callable[[State], Bool[Array, ""]],
    step: Callable[[State], State],
    state: State,
) -> State:
    """`lax.while_loop` over a carry that may hold cells."""
    ordered = _after_reads(True, state)
    return jax.lax.while_loop(
        lambda carry: carry[0] & going(carry[1]),
        lambda carry: (carry[0], step(carry[1])),
        (ordered, state),
    )[1]
