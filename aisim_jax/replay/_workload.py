"""From a prediction's traffic section to the requests that are simulated."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
from jaxtyping import Float

from ..config import PredictionConfig, locate_traces
from ..traffic import (
    Tokenizer,
    TraceFormat,
    Workload,
    constant_rate_ms,
    gamma_ms,
    poisson_ms,
    read_trace,
    sessions,
    synthetic,
)
from ._resolved import Resolved


def build_workload(
    config: PredictionConfig, resolved: Resolved, beside: Path | None = None
) -> Workload:
    """The requests of `config` for the engine that `resolved` describes.

    beside: where trace files are looked for after the working directory. Sessions share
    whole blocks of the engine that computes prompts.
    """
    traffic = config.traffic
    source, load, stop = traffic.source, traffic.load, traffic.stop
    stage = config.engine.tokenization
    tokenizer = (
        None
        if stage is None
        else Tokenizer(stage.workers, stage.base_ms, stage.per_input_token_us)
    )
    in_flight = load.concurrency if load.type == "concurrency" else None
    if source.type == "trace":
        cap_s = None if stop is None else stop.max_virtual_time_seconds
        return read_trace(
            locate_traces(source.paths, beside),
            # The formats that are not read were refused with the engine.
            cast(TraceFormat, source.format),
            max_in_flight=in_flight,
            speedup=load.speedup if load.type == "trace_timestamps" else 1.0,
            block_tokens=source.block_size or 1,
            seed=source.seed,
            missing_as_zero=config.engine.compat,
            max_virtual_time_ms=None if cap_s is None else cap_s * 1000,
            tokenizer=tokenizer,
        )
    count = (stop.requests or stop.sessions or 0) if stop else 0
    arrival_ms = arrivals(config, count)
    if source.type == "synthetic":
        return synthetic(
            count,
            isl_tokens=source.input_tokens,
            osl_tokens=source.output_tokens,
            cached_prefix_tokens=source.cached_prefix_tokens,
            random_range_ratio=source.random_range_ratio,
            lengths_seed=source.lengths_seed,
            arrival_ms=arrival_ms,
            max_in_flight=in_flight,
            tokenizer=tokenizer,
        )
    shape = source.session
    deployment = resolved.deployment
    return sessions(
        count,
        block_size=(deployment.prefill or deployment.decode).block_size,
        turns=shape.turns,
        new_isl_tokens=source.new_input_tokens_per_turn,
        osl_tokens=source.output_tokens_per_turn,
        shared_prefix_ratio=shape.shared_prefix_ratio,
        prefix_groups=shape.prefix_groups,
        delay_ms=shape.inter_turn_delay_ms,
        arrival_ms=arrival_ms,
        max_in_flight=in_flight,
        tokenizer=tokenizer,
    )


def arrivals(
    config: PredictionConfig, count: int
) -> Float[np.ndarray, " starts"] | None:
    """When the requests or sessions of an open loop arrive, ms; None in a closed loop."""
    load = config.traffic.load
    if load.type == "poisson":
        return poisson_ms(count, load.per_second, load.seed)
    if load.type == "gamma":
        return gamma_ms(count, load.per_second, load.burstiness, load.seed)
    if load.type == "constant_rate":
        return constant_rate_ms(count, load.per_second)
    return None
