"""Speed of light of attention, in ms, for NumPy and jax arrays alike.

`xp` is the array namespace (numpy or jax.numpy); `coef` is indexable by position. One
formula serves table preparation, the scalar path and the batched kernels.
"""

from __future__ import annotations

from typing import Any

from ._arrays import Values


def context_sol_ms(
    xp: Any, coef: Any, batch: Values, new: Values, prefix: Values
) -> Values:
    """Prefill attention of `batch` requests of `new` tokens after `prefix` cached ones.

    coef = (per_square, per_windowed, window, per_new, per_full), ms;
    max(b (full^2 - prefix^2) per_square, or b full per_windowed where full > window;
    b (new per_new + full per_full)) with full = new + prefix.
    """
    full = new + prefix
    compute = xp.where(
        full > coef[2],
        batch * full * coef[1],
        batch * (full * full - prefix * prefix) * coef[0],
    )
    return xp.maximum(compute, batch * (new * coef[3] + full * coef[4]))


def generation_sol_ms(xp: Any, coef: Any, batch: Values, kv_len: Values) -> Values:
    """Decode attention of `batch` rows whose newest token sees `kv_len` tokens.

    coef = (flat, per_kv, compute_skip, window, rows, per_read, fixed), ms;
    max(b (flat + per_kv min(kv - compute_skip, window)),
    b (rows + per_read min(kv - 1, window)) + fixed).
    """
    read = xp.minimum(kv_len - 1.0, coef[3])
    scored = xp.minimum(kv_len - coef[2], coef[3])
    compute = batch * (coef[0] + coef[1] * scored)
    return xp.maximum(compute, batch * (coef[4] + coef[5] * read) + coef[6])


def grid_sol_ms(
    xp: Any, context: bool, coef: Any, outer: Values, inner: Values
) -> Values:
    """Speed of light at grid coordinates, without a cached prefix, ms.

    (outer, inner) is (full sequence, batch) in prefill, (batch, KV length) in decode.
    """
    if context:
        return context_sol_ms(xp, coef, inner, outer, 0.0)
    return generation_sol_ms(xp, coef, outer, inner)
