"""Why a point is not an answer: one code per point, one name per code."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from jaxtyping import Integer


class Reason(IntEnum):
    """Outcome of one evaluated point; the first that applies, in this order."""

    MEETS = 0
    NO_DATA = 1  # the layout cannot be priced, or its tables do not reach this point
    MEMORY = 2  # weights, activations and cache exceed the device
    KV_ROOM = 3  # the cache exceeds what the engine reserves for it
    NOT_VISITED = 4  # skipped by the compatible sweep's stops and slice dedup
    TTFT = 5
    TPOT = 6
    REQUEST_LATENCY = 7
    GPUS = 8  # no replica of this worker fits the GPU budget


REASON_NAMES = {
    Reason.MEETS: "meets",
    Reason.NO_DATA: "no_data",
    Reason.MEMORY: "memory",
    Reason.KV_ROOM: "kv",
    Reason.NOT_VISITED: "not_visited",
    Reason.TTFT: "ttft",
    Reason.TPOT: "tpot",
    Reason.REQUEST_LATENCY: "request_latency",
    Reason.GPUS: "gpus",
}


def count_reasons(*codes: Integer[np.ndarray, " _"]) -> dict[str, int]:
    """Points per reason name over all code arrays; reasons that never occur are absent."""
    total = np.bincount(np.concatenate(codes), minlength=len(Reason))
    return {
        REASON_NAMES[reason]: int(total[reason]) for reason in Reason if total[reason]
    }
