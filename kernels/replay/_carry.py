"""Loop carries with their small leaves packed into one array per dtype.

A CPU program moves every carried leaf on its own, at a cost that does not depend on its
size; hundreds of scalars a step would cost more than the arithmetic on them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


SMALL = 16


def packed_loop(
    going: Callable[[Any], Any], step: Callable[[Any], Any], state: Any
) -> Any:
    """`lax.while_loop`, carrying the leaves of up to SMALL elements packed by dtype."""
    leaves, tree = jax.tree.flatten(state)
    groups: dict[Any, list[int]] = {}
    for i, leaf in enumerate(leaves):
        if leaf.size <= SMALL:
            groups.setdefault(leaf.dtype, []).append(i)
    large = [i for i, leaf in enumerate(leaves) if leaf.size > SMALL]
    shapes = [leaf.shape for leaf in leaves]

    def pack(state: Any) -> tuple[list, list]:
        leaves = jax.tree.leaves(state)
        small = [
            jnp.concatenate([leaves[i].reshape(-1) for i in members])
            for members in groups.values()
        ]
        return small, [leaves[i] for i in large]

    def unpack(carry: tuple[list, list]) -> Any:
        small, others = carry
        leaves = dict(zip(large, others, strict=True))
        for members, vector in zip(groups.values(), small, strict=True):
            start = 0
            for i in members:
                size = int(np.prod(shapes[i]))
                leaves[i] = vector[start : start + size].reshape(shapes[i])
                start += size
        return jax.tree.unflatten(tree, [leaves[i] for i in range(len(shapes))])

    carry = jax.lax.while_loop(
        lambda carry: going(unpack(carry)),
        lambda carry: pack(step(unpack(carry))),
        pack(state),
    )
    return unpack(carry)
