"""Requests that an engine can never serve, found before the run, each with its reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from ..traffic import Workload
from ._deployment import Deployment, Policy, Role


# SGLang: tokens of one chunk, and the most output that an admission reserves for.
SGLANG_CHUNK_TOKENS = 8192
SGLANG_RESERVE_TOKENS = 4096


class Reason(IntEnum):
    """Why a request cannot be served."""

    FITS = 0
    CONTEXT = 1
    PROMPT_POOL = 2
    WHOLE_POOL = 3
    BUDGET = 4
    PAGE = 5


SENTENCES = {
    Reason.CONTEXT: "the prompt reaches the context limit of {limit:,} tokens; raise "
    "engine.context_length or shorten the prompts",
    Reason.PROMPT_POOL: "the prompt alone needs more than the {limit:,} tokens of a "
    "rank's KV cache; use a larger tensor size or a larger kv_cache.capacity",
    Reason.WHOLE_POOL: "prompt and output together need more than the {limit:,} tokens "
    "of a rank's KV cache; use a larger tensor size or kv_cache.capacity, or cut the "
    "output with a smaller engine.context_length",
    Reason.BUDGET: "chunked prefill is off and the prompt exceeds the {limit:,} tokens "
    "of one pass; raise scheduler.max_batched_tokens or enable chunked prefill",
    Reason.PAGE: "whole pages of the prompt do not fit the {limit:,} tokens of a "
    "prefill chunk; use a smaller kv_cache.block_size",
}


@dataclass(frozen=True)
class Admissible:
    """What a workload is on a deployment.

    workload: outputs cut to the limits. reason: a `Reason` per request. stalls: requests
    that the engine would wait for forever, to be refused before the run; it rejects the
    others with a reason itself. limit_tokens: the limit behind each reason.
    """

    workload: Workload
    reason: Int[np.ndarray, " reqs"]
    stalls: Bool[np.ndarray, " reqs"]
    limit_tokens: dict[Reason, int]

    def sentence(self, reason: Reason) -> str:
        """Reason, limit and remedy for a person."""
        return SENTENCES[reason].format(limit=self.limit_tokens[reason])


class _Rule(NamedTuple):
    """Requests that break one rule; stalls: the engine does not notice."""

    reason: Reason
    broken: Bool[np.ndarray, " reqs"]
    limit_tokens: int
    stalls: bool


def admissible(workload: Workload, deployment: Deployment) -> Admissible:
    """Cut outputs to the limits and say which requests can never be served, and why."""
    isl = workload.isl_tokens.astype(np.int64)
    cut = cut_outputs(isl, workload.osl_tokens.astype(np.int64), deployment)
    reason = np.full(isl.shape, int(Reason.FITS))
    stalls = np.zeros(isl.shape, bool)
    limits: dict[Reason, int] = {}
    for rule in _rules(workload, isl, cut, deployment):
        # The first rule that a request breaks names it.
        fresh = rule.broken & (reason == Reason.FITS)
        if fresh.any():
            reason[fresh] = rule.reason
            stalls[fresh] = rule.stalls
            limits.setdefault(rule.reason, rule.limit_tokens)
    return Admissible(replace(workload, osl_tokens=cut), reason, stalls, limits)


def cut_outputs(
    isl_tokens: Int[np.ndarray, " reqs"],
    osl_tokens: Int[np.ndarray, " reqs"],
    deployment: Deployment,
) -> Int[np.ndarray, " reqs"]:
    """Outputs as the engine limits them: by the context and, in TensorRT-LLM, the pool."""
    role = deployment.decode
    cut = osl_tokens
    if deployment.policy == "trtllm":
        pool = role.num_blocks * role.block_size
        cut = np.where(isl_tokens < pool, np.minimum(cut, pool - isl_tokens), cut)
    if role.max_model_len is not None:
        cut = np.minimum(cut, np.maximum(role.max_model_len - isl_tokens, 0))
    return cut


def _rules(
    workload: Workload,
    isl: Int[np.ndarray, " reqs"],
    output: Int[np.ndarray, " reqs"],
    deployment: Deployment,
) -> Iterator[_Rule]:
    entry = deployment.prefill or deployment.decode
    if entry.max_model_len is not None:
        limit = entry.max_model_len
        yield _Rule(Reason.CONTEXT, isl >= limit, limit, False)
    if deployment.prefill is not None:
        # A prefill worker is asked for one token.
        yield from _pool_rules(
            deployment.policy, deployment.prefill, isl, np.minimum(output, 1), True
        )
    yield from _pool_rules(
        deployment.policy, deployment.decode, isl, output, entry is deployment.decode
    )
    if deployment.policy == "sglang":
        yield _page_rule(isl, entry.block_size)
    elif not entry.chunked_prefill:
        limit = entry.max_batched_tokens
        yield _Rule(
            Reason.BUDGET, isl - _most_reuse(workload, entry) > limit, limit, True
        )


def _pool_rules(
    policy: Policy,
    role: Role,
    isl: Int[np.ndarray, " reqs"],
    output: Int[np.ndarray, " reqs"],
    admits: bool,
) -> Iterator[_Rule]:
    """Blocks that a request needs at least; admits: new requests enter this role."""
    size, pool = role.block_size, role.num_blocks * role.block_size
    if policy == "sglang":
        # An admission must leave room: pages of the prompt + reserve < pool.
        reserve = np.minimum(output, SGLANG_RESERVE_TOKENS)
        prompt = -(-isl // size) * size
        yield _Rule(Reason.PROMPT_POOL, prompt >= pool, pool, True)
        yield _Rule(Reason.WHOLE_POOL, prompt + reserve >= pool, pool, True)
    else:
        prompt = -(-isl // size) * size
        yield _Rule(Reason.PROMPT_POOL, prompt > pool, pool, not admits)
    if policy == "trtllm":
        whole = -(-(isl + output) // size) * size
        yield _Rule(Reason.WHOLE_POOL, whole > pool, pool, not admits)
    else:
        # The last token is never stored.
        whole = -(-(isl + np.maximum(output - 1, 0)) // size) * size
        yield _Rule(Reason.WHOLE_POOL, whole > pool, pool, True)


def _page_rule(isl: Int[np.ndarray, " reqs"], page: int) -> _Rule:
    """The last chunk, rounded up to pages, must still be a chunk."""
    chunk = SGLANG_CHUNK_TOKENS // page * page
    chunks = np.maximum(-(-(isl - SGLANG_CHUNK_TOKENS) // max(chunk, 1)), 0)
    rest = isl - chunks * chunk
    broken = -(-rest // page) * page > SGLANG_CHUNK_TOKENS
    return _Rule(Reason.PAGE, broken, SGLANG_CHUNK_TOKENS, True)


def _most_reuse(workload: Workload, role: Role) -> Int[np.ndarray, " reqs"]:
    """The most prompt tokens that a prefix cache could hold: what any other row has."""
    none = np.zeros(workload.size, np.int64)
    if not (role.prefix_caching and workload.contents.shares()):
        return none
    size = role.block_size
    keys = workload.contents.block_keys(workload.isl_tokens, workload.osl_tokens, size)
    shared = np.bincount(keys.ids, minlength=keys.distinct)[keys.ids] > 1
    through = np.concatenate([[0], np.cumsum(shared)])
    leading = through[keys.start[1:]] - through[keys.start[:-1]]
    return np.minimum(leading, (workload.isl_tokens - 1) // size) * size
