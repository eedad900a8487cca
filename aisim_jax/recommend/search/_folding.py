"""When two settings of a role cannot behave differently under a workload.

Every rule is a proof that a limit can never bind, from how many requests one rank can
hold at once and how long they are. Where no rule applies the setting stays itself.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, fields
from typing import Literal

import jax

from aisim_jax.replay import Deployment, Role
from aisim_jax.traffic import Workload


Duty = Literal["aggregated", "prefill", "decode"]

NEVER_BINDS = -1


@dataclass(frozen=True)
class Extremes:
    """What bounds the work of a rank; tokens.

    in_flight: requests that can be in the system at once.
    """

    requests: int
    in_flight: int
    least_isl: int
    most_isl: int
    most_tokens: int
    shares: bool

    def on_one_rank(self, role: Role) -> int:
        """Most requests that one rank can hold at once: placement is round robin."""
        return min(self.in_flight, self.served_by_one_rank(role))

    def served_by_one_rank(self, role: Role) -> int:
        """Most requests that one rank serves in the whole run."""
        of_worker = -(-self.requests // role.workers)
        return -(-of_worker // role.ranks)


def extremes(workload: Workload) -> Extremes:
    """Extremes of a workload of at least one request."""
    limit = workload.max_in_flight
    isl, osl = workload.isl_tokens.astype("int64"), workload.osl_tokens
    return Extremes(
        requests=workload.size,
        in_flight=workload.size if limit is None else min(limit, workload.size),
        least_isl=int(isl.min()),
        most_isl=int(isl.max()),
        most_tokens=int((isl + osl).max()),
        shares=workload.contents.shares() or workload.has_sessions,
    )


def behaviour(deployment: Deployment, workload: Workload, facts: Extremes) -> Hashable:
    """Equal for deployments that give the same answer for `workload`."""
    policy = deployment.policy
    decode_duty: Duty = "decode" if deployment.prefill else "aggregated"
    return (
        id(workload),
        policy,
        deployment.transfer,
        role_behaviour(deployment.decode, policy, decode_duty, facts),
        deployment.prefill
        and role_behaviour(deployment.prefill, policy, "prefill", facts),
    )


def role_behaviour(
    role: Role, policy: str, duty: Duty, facts: Extremes
) -> tuple[tuple[str, Hashable], ...]:
    """A role with every limit that can never bind replaced by one mark."""
    same: dict[str, Hashable] = {
        field.name: getattr(role, field.name) for field in fields(role)
    }
    # Tables of a layout are built once the workload is known: the layout decides.
    same["steps"] = _prices(role.steps) if role.prices is None else None
    held = facts.on_one_rank(role)
    roomy = _pool_never_fills(role, policy, duty, facts)
    if roomy:
        same["num_blocks"] = NEVER_BINDS
    if role.max_sequences >= _most_running(role, policy, duty, facts, roomy):
        same["max_sequences"] = NEVER_BINDS
    running = min(held, role.max_sequences)
    if policy == "sglang" or _budget_never_spent(role, duty, facts, running, roomy):
        same["max_batched_tokens"] = NEVER_BINDS
    return tuple(same.items())


def _pool_never_fills(role: Role, policy: str, duty: Duty, facts: Extremes) -> bool:
    """Whether all requests of a rank fit its pool at once, from prompt to last token.

    With shared contents nothing may ever be evicted, so all requests of the run count.
    Blocks outlive the slot in a prefill role and precede it in a decode role.
    """
    holders = facts.on_one_rank(role)
    if duty == "aggregated":
        holders = min(holders, role.max_sequences)
    if facts.shares:
        holders = facts.served_by_one_rank(role)
    tokens = facts.most_tokens + len(role.acceptance) + 1
    if policy == "sglang":
        # Reserves count tokens beside whole pages; admission keeps one token free.
        return holders * (tokens + 2 * role.block_size) < role.num_blocks * (
            role.block_size
        )
    return holders * -(-tokens // role.block_size) <= role.num_blocks


def _most_running(
    role: Role, policy: str, duty: Duty, facts: Extremes, roomy: bool
) -> int:
    """Most requests in the slots of a rank.

    A prefill role keeps a request until its prompt is computed: in one pass the budget
    reaches the rest of one prompt, whole prompts, and the start of another.
    """
    held = facts.on_one_rank(role)
    if duty != "prefill" or policy == "sglang" or facts.shares or not roomy:
        return held
    whole = max(role.max_batched_tokens - 2, 0) // facts.least_isl
    return min(held, 2 + whole)


def _budget_never_spent(
    role: Role, duty: Duty, facts: Extremes, running: int, roomy: bool
) -> bool:
    """Whether the token budget covers everything that `running` requests can ask for.

    A preempted request computes its generated tokens again.
    """
    if role.acceptance:
        return False
    if not roomy:
        needed = running * facts.most_tokens
    elif duty == "decode":
        needed = running
    else:
        needed = running * facts.most_isl
    if duty == "decode" or facts.shares:
        # A request that needs no token is looked at only while budget is left.
        return role.max_batched_tokens > needed
    return role.max_batched_tokens >= needed


def _prices(steps: object) -> Hashable:
    """Identity of a price model: its structure and the very arrays it holds."""
    leaves, structure = jax.tree.flatten(steps)
    return (structure, tuple(_leaf(leaf) for leaf in leaves))


def _leaf(leaf: object) -> Hashable:
    size = getattr(leaf, "size", None)
    if size == 1:
        return leaf.item()  # pyright: ignore[reportAttributeAccessIssue]
    return id(leaf) if size is not None else leaf  # pyright: ignore
