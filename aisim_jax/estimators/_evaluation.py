"""Running step kernels over arrays of queries, in chunks of fixed sizes.

The compile key is (stack shapes, static options, chunk size). Few queries use one
program that knows every rule, so that a command compiles little; many use programs that
know one side of the measured grid each, so that neither side pays for the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import jax
import numpy as np
from jaxtyping import Float, Int

from .._precision import precision
from ..kernels import Options, StepStack, over_queries


FEW = 16384  # queries up to which one program answers everything
FEW_CHUNK, MANY_CHUNK = 1024, 4096


@partial(jax.jit, static_argnames=("function", "options"))
def _run(stack: StepStack, lane, counts, *, function, options: Options):
    return over_queries(function, options, len(counts))(stack, lane, *counts)


def run_chunks(
    stack: StepStack,
    function: Callable,
    options: Options,
    lane: Int[np.ndarray, " n"],
    counts: Sequence[Float[np.ndarray, " n"]],
    chunk: int,
) -> Float[np.ndarray, " n"]:
    """`function` at every query, padded to whole chunks."""
    size = lane.size
    out = np.empty(size)
    arrays = [lane.astype(np.int32), *counts]
    with precision():
        for start in range(0, size, chunk):
            part = [a[start : start + chunk] for a in arrays]
            missing = chunk - part[0].size
            if missing:
                part = [np.pad(a, (0, missing), mode="edge") for a in part]
            value = _run(
                stack, part[0], tuple(part[1:]), function=function, options=options
            )
            out[start : start + chunk] = value[: chunk - missing]
    return out
