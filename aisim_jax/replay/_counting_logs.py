"""Pass, token and admission records of the counting engine, from its three logs."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from .._precision import precision
from ..kernels.replay import Steps
from ._outcome import COMPLETED, Admissions, Passes, TokenTimes


def passes_of(packed: Any, answer: dict[str, Any]) -> Passes:
    """The pass log, without its unused end."""
    used = int(answer["counters"].events)
    start, end, worker, passes, *sums = (field[:used] for field in answer["log"])
    return Passes(start, end, np.zeros_like(worker), worker, passes, *sums)


def admissions_of(
    packed: Any, answer: dict[str, Any], status: Int[np.ndarray, " reqs"]
) -> Admissions:
    """First admissions and returns of completed requests, in time order."""
    order = packed.order
    returned = int(answer["counters"].readmissions)
    again = order[answer["admitted"].request[:returned]]
    row = np.concatenate([order, again])
    at_ms = np.concatenate(
        [answer["records"].admit_ms[: order.size], answer["admitted"].at_ms[:returned]]
    )
    kept = status[row] == COMPLETED
    row, at_ms = row[kept], at_ms[kept]
    sort = np.lexsort([row, at_ms])
    none = np.zeros(row.size, np.int64)
    return Admissions(row[sort], at_ms[sort], none, none)


def token_times_of(
    packed: Any, answer: dict[str, Any], status: Int[np.ndarray, " reqs"]
) -> TokenTimes:
    """Every token of every completed request.

    A request emits at consecutive passes of its worker from the start of a run on, until
    its next run starts or it ends.
    """
    order, traffic = packed.order, packed.lane.traffic
    size = order.size
    output = (traffic.target - traffic.isl)[:size].astype(np.int64)
    tokens = np.zeros(size, np.int64)
    tokens[order] = output
    tokens[status != COMPLETED] = 0
    start = np.concatenate([[0], np.cumsum(tokens)])
    ends = _pass_ends_ms(packed, answer)
    used = int(answer["counters"].runs)
    request, at_pass, token = (field[:used] for field in answer["runs"])
    sort = np.lexsort([token, request])
    request, at_pass, token = request[sort], at_pass[sort], token[sort]
    follows = np.append(request[1:] == request[:-1], False)
    last = np.where(follows, np.append(token[1:], 0), output[request])
    kept = status[order[request]] == COMPLETED
    request, at_pass, token = request[kept], at_pass[kept], token[kept]
    length = last[kept] - token
    at_ms = np.empty(int(start[-1]))
    inside = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
    place = np.repeat(start[order[request]] + token, length) + inside
    worker = np.repeat(request % int(packed.lane.limits.workers), length)
    number = np.repeat(at_pass, length) + inside
    for w, ends_ms in enumerate(ends):
        mine = worker == w
        at_ms[place[mine]] = ends_ms[number[mine]]
    return TokenTimes(at_ms, start)


def _pass_ends_ms(
    packed: Any, answer: dict[str, Any]
) -> list[Float[np.ndarray, " passes"]]:
    """Ends of all passes of every worker; stretches are priced again, pass by pass."""
    log = passes_of(packed, answer)
    found = []
    for worker in range(int(packed.lane.limits.workers)):
        mine = log.worker == worker
        passes = log.passes[mine].astype(np.int64)
        ends = np.repeat(log.end_ms[mine], passes)
        first = np.cumsum(passes) - passes
        number = np.arange(ends.size) - np.repeat(first, passes)
        long = np.repeat(passes > 1, passes)
        requests = np.repeat(log.decode_requests[mine], passes)[long]
        context = np.repeat(log.sum_context[mine], passes)[long]
        ns = _decode_ns(
            packed.lane.steps,
            requests,
            context.astype(np.int64) + requests * number[long],
        )
        since = np.zeros(ends.size, np.int64)
        since[long] = ns
        total = np.cumsum(since)
        before = np.repeat(total[first] - since[first], passes)
        elapsed = (total - before)[long] / 1e6
        if packed.shape.apart:
            # Means place the passes within a stretch of known length.
            priced = np.repeat(np.add.reduceat(since, first), passes)[long] / 1e6
            span = np.repeat(log.end_ms[mine] - log.start_ms[mine], passes)[long]
            elapsed = elapsed * span / priced
        last = (number == np.repeat(passes, passes) - 1)[long]
        starts = np.repeat(log.start_ms[mine], passes)[long]
        ends[long] = np.where(last, ends[long], starts + elapsed)
        found.append(ends)
    return found


@jax.jit
def _priced(steps: Steps, requests, context):
    return steps.decode_ns(requests, context)


def _decode_ns(
    steps: Steps, requests: Int[np.ndarray, " n"], context: Int[np.ndarray, " n"]
) -> Int[np.ndarray, " n"]:
    size = requests.size
    room = 1 << max(size - 1, 0).bit_length()
    pad = (0, room - size)
    with precision():
        ns = _priced(steps, np.pad(requests, pad), np.pad(context, pad))
        return np.asarray(ns)[:size]
