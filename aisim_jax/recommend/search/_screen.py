"""The best that a candidate could do, in closed form, without simulating it.

A rank cannot produce a token cheaper than in its most favourable batch, nor a prompt
cheaper than in its most favourable pass; nobody is served faster than alone.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from aisim_jax._precision import precision
from aisim_jax.kernels import Values
from aisim_jax.kernels.replay import Steps
from aisim_jax.replay import Deployment, Role
from aisim_jax.traffic import Workload

from ._folding import Extremes, extremes
from ._score import Goal


Points = Int[np.ndarray, " pts"]

# Prices between the points that are looked at may be lower by this share.
SLACK = 0.1
GRID = 48
NS_PER_S = 1e9
NS_PER_MS = 1e6


class Floor(NamedTuple):
    """Lower bounds of one role, ns: per token of a batch, per step, per prompt."""

    token_ns: float
    step_ns: float
    prompt_ns: float
    first_prompt_ns: float


class Bound(NamedTuple):
    """Upper bounds of rates (tokens/s, also of one user), lower bounds of means (ms)."""

    output_tokens_per_s: float
    user_tokens_per_s: float
    ttft_ms: float
    e2e_ms: float


class Screen:
    """Bounds of many deployments; prices of each role are looked up once."""

    def __init__(self) -> None:
        self._floors: dict[tuple[object, ...], Floor] = {}
        self._kept: list[Steps] = []  # keeps the identities in the keys alive

    def bound(self, workload: Workload, deployment: Deployment) -> Bound:
        """Nothing that a replay of `deployment` answers can be better than this."""
        facts = extremes(workload)
        decode = self._floor(deployment.decode, facts)
        entry = deployment.prefill or deployment.decode
        prefill = self._floor(entry, facts) if deployment.prefill else decode
        output = workload.osl_tokens.astype(np.int64)
        mean_output = float(output.mean())
        apart = deployment.prefill is not None
        # The prompt's pass gives the first token, where one worker does both.
        steps = mean_output if apart else max(mean_output - 1, 0)
        busy_ns = _share(facts, deployment.decode) * (
            steps * decode.token_ns + (0 if apart else decode.prompt_ns)
        )
        if apart:
            busy_ns = max(busy_ns, _share(facts, entry) * prefill.prompt_ns)
        alone_ns = prefill.first_prompt_ns + steps * decode.step_ns
        lasts_ns = max(busy_ns, alone_ns, facts.requests / facts.in_flight * alone_ns)
        if workload.max_in_flight is None:
            last_ns = float(np.nanmax(workload.arrival_ms)) * NS_PER_MS
            lasts_ns = max(lasts_ns, last_ns + alone_ns)
        total = float(output.sum())
        first_ns = prefill.first_prompt_ns + (decode.step_ns if apart else 0)
        return Bound(
            output_tokens_per_s=_rate(total, lasts_ns),
            user_tokens_per_s=_rate(1.0, decode.step_ns),
            ttft_ms=first_ns / NS_PER_MS,
            e2e_ms=alone_ns / NS_PER_MS,
        )

    def _floor(self, role: Role, facts: Extremes) -> Floor:
        most = min(facts.on_one_rank(role), role.max_sequences)
        key = (id(role.steps), most, role.max_batched_tokens, facts)
        if key not in self._floors:
            self._kept.append(role.steps)
            self._floors[key] = _floor(role, most, facts)
        return self._floors[key]


def best_score(bound: Bound, used_gpus: int, goal: Goal) -> tuple[float, ...]:
    """What a candidate can reach at most; one number, or one per objective."""
    per_gpu = bound.output_tokens_per_s / used_gpus
    return {
        "throughput": (bound.output_tokens_per_s,),
        "goodput": (bound.output_tokens_per_s,),
        "throughput_per_gpu": (per_gpu,),
        "goodput_per_gpu": (per_gpu,),
        "throughput_per_user": (bound.user_tokens_per_s,),
        "ttft": (-bound.ttft_ms,),
        "e2e_latency": (-bound.e2e_ms,),
        "min_gpus": (-float(used_gpus),),
        "pareto": (per_gpu, bound.user_tokens_per_s),
    }[goal.target]


def _share(facts: Extremes, role: Role) -> int:
    """Requests of the rank that gets the most."""
    return facts.served_by_one_rank(role)


def _floor(role: Role, most: int, facts: Extremes) -> Floor:
    batch = np.unique(np.geomspace(1, max(most, 1), GRID).astype(np.int32))
    step = _priced(
        _decode_ns,
        role.steps,
        batch,
        (batch * np.int64(facts.least_isl)).astype(np.int64),
    )
    # An accepted draft makes a step worth more tokens.
    gain = 1.0 + sum(np.cumprod(role.acceptance)) if role.acceptance else 1.0
    isl = facts.least_isl
    requests, chunk = _prefill_grid(most, isl, role.max_batched_tokens)
    whole = _priced(_prefill_ns, role.steps, requests, chunk, np.zeros_like(chunk))
    per_token = np.nanmin(whole / (requests * chunk), initial=np.inf)
    alone = per_token * isl
    if isl <= role.max_batched_tokens:
        single = whole[(requests == 1) & (chunk == isl)]
        alone = max(alone, np.nanmin(single, initial=np.inf))
    keep = 1 - SLACK
    reuse = 0.0 if facts.shares else 1.0
    floor = Floor(
        token_ns=np.nanmin(step / batch, initial=np.inf) * keep / gain,
        step_ns=np.nanmin(step, initial=np.inf) * keep / gain,
        prompt_ns=per_token * isl * keep * reuse,
        first_prompt_ns=alone * keep * reuse,
    )
    return Floor(*(float(ns) if np.isfinite(ns) else 0.0 for ns in floor))


def _prefill_grid(
    most: int, isl: int, budget: int
) -> tuple[Int[np.ndarray, " pts"], Int[np.ndarray, " pts"]]:
    """Passes of several prompts, whole or in equal parts, within the budget."""
    parts = np.unique(np.append(np.geomspace(1, isl, GRID), [isl, min(isl, budget)]))
    requests = np.unique(np.geomspace(1, max(min(most, 2 + budget // isl), 1), 12))
    n, chunk = np.meshgrid(requests.astype(np.int32), parts.astype(np.int32))
    n, chunk = n.ravel(), chunk.ravel()
    fits = (n.astype(np.int64) * chunk <= budget) | ((n == 1) & (chunk == isl))
    return n[fits], chunk[fits]


@eqx.filter_jit
def _decode_ns(steps: Steps, requests: Values, context: Values) -> Values:
    return steps.decode_ns(requests, context)


@eqx.filter_jit
def _prefill_ns(steps: Steps, requests: Values, isl: Values, prefix: Values) -> Values:
    return steps.prefill_ns(requests, isl, prefix)


def _priced(price, steps: Steps, *queries: Points) -> Float[np.ndarray, " pts"]:
    """Prices in ns; NaN where no table answers.

    Compiles once per kind of prices and bucket of points.
    """
    size = queries[0].size
    room = 1 << max(size - 1, 0).bit_length()
    with precision():
        # Arrays of the host are constants to the compiler.
        own = jax.tree.map(jnp.asarray, steps)
        padded = [
            jnp.asarray(np.pad(q, (0, room - size), mode="edge")) for q in queries
        ]
        ns = np.asarray(price(own, *padded), float)[:size]
    return np.where(ns < 0, np.nan, ns)


def _rate(amount: float, ns: float) -> float:
    return amount / ns * NS_PER_S if ns > 0 else np.inf
