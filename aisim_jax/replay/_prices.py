"""Prices for the workloads at hand.

What a pass costs is known when a deployment is resolved; which passes are asked for is
known when a workload is. `with_prices` joins the two: it tabulates what the scenarios
can reach, once for all that share a layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..traffic import Workload
from ._admissible import SGLANG_CHUNK_TOKENS, cut_outputs
from ._deployment import Deployment, Role
from ._op_level_prices import OpLevelPrices
from ._reach import Reach


UNBOUNDED = 2**40


def with_prices(
    scenarios: Sequence[tuple[Workload, Deployment]],
) -> list[tuple[Workload, Deployment]]:
    """The scenarios with prices for every pass that they can ask for.

    Roles of fixed or polynomial prices stay as they are.
    """
    wanted: dict[OpLevelPrices, Reach] = {}
    for workload, deployment in scenarios:
        for role in _roles(deployment):
            prices = role.prices
            if prices is not None:
                reach = reach_of(workload, deployment, role, apart=prices.apart)
                known = wanted.get(prices)
                wanted[prices] = reach if known is None else known.union(reach)
    steps = {prices: prices.steps(reach) for prices, reach in wanted.items()}

    def priced(role: Role) -> Role:
        return role if role.prices is None else replace(role, steps=steps[role.prices])

    return [
        (
            workload,
            replace(
                deployment,
                decode=priced(deployment.decode),
                prefill=None
                if deployment.prefill is None
                else priced(deployment.prefill),
            ),
        )
        for workload, deployment in scenarios
    ]


def reach_of(
    workload: Workload, deployment: Deployment, role: Role, *, apart: bool = False
) -> Reach:
    """Bounds of the passes that `role` of `deployment` runs for `workload`.

    apart: requests are priced one by one, so a length is not a mean.
    """
    isl = workload.isl_tokens.astype(np.int64)
    osl = cut_outputs(isl, workload.osl_tokens.astype(np.int64), deployment)
    limit = UNBOUNDED if role.max_model_len is None else role.max_model_len
    in_flight = workload.max_in_flight or workload.size
    running = min(role.max_sequences, in_flight, workload.size)
    if deployment.policy == "sglang":
        budget = SGLANG_CHUNK_TOKENS
    else:
        budget = role.max_batched_tokens
    prompt = min(int(isl.max()), limit)
    decodes = role is deployment.decode
    prefills = role is not deployment.decode or not deployment.disaggregated
    # Blocks that requests share count once in the pool, but for each of them here.
    shared = workload.has_sessions or workload.contents.shares()
    pool = role.num_blocks * role.block_size + running * (2 + len(role.acceptance))
    if apart or (shared and role.prefix_caching):
        pool = UNBOUNDED
    return Reach(
        requests=running if decodes else 0,
        shortest=min(int(isl.min()), limit) if decodes else UNBOUNDED,
        longest=min(int((isl + osl).max()), limit) + 1 if decodes else 0,
        prompts=min(running, budget) if prefills else 0,
        prompt=prompt,
        new_tokens=min(budget, running * prompt) if prefills else 0,
        pool_tokens=pool,
        passes=int(osl.sum()),
    )


def _roles(deployment: Deployment) -> list[Role]:
    prefill = deployment.prefill
    return [deployment.decode, *([] if prefill is None else [prefill])]
