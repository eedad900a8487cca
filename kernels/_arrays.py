"""What kernels take and return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
from jaxtyping import Bool, Num
from numpy import ndarray


# Array: prepared on the host, traced in kernels. Values: a scalar, or an array of either
# library; shapes broadcast. What comes out depends on what goes in, which a static
# checker cannot follow; at run time the claim is tested.
if TYPE_CHECKING:
    Array = Any
    Values = Any
    Flags = Any
else:
    Array = jax.Array | ndarray
    Values = Num[Any, "..."] | float | int
    Flags = Bool[Any, "..."] | bool
