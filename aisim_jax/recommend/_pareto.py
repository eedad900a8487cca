"""Non-dominated points of two objectives."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int


def pareto_front(
    benefit: Float[np.ndarray, " pts"],
    value: Float[np.ndarray, " pts"],
) -> Int[np.ndarray, " front"]:
    """Indices of the points that no other point equals or beats on both axes.

    Both axes are maximised (negate one to minimise it); of identical points the first
    stays, non-finite points never do. Ascending `benefit`. One sort and one running
    maximum: O(n log n).

    >>> import numpy as np
    >>> pareto_front(np.array([1.0, 2.0, 2.0, 3.0]), np.array([5.0, 4.0, 1.0, 4.0]))
    array([0, 3])
    """
    finite = np.flatnonzero(np.isfinite(benefit) & np.isfinite(value))
    order = finite[np.lexsort((-value[finite], -benefit[finite]))]
    best = np.maximum.accumulate(value[order])
    improves = np.diff(best, prepend=-np.inf) > 0
    return order[improves][::-1]
