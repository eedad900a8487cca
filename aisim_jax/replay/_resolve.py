"""From a prediction's engine section to the deployment that is simulated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from .._errors import AisimError, InvalidInputError, UnsupportedError
from ..config import (
    ForwardPassConfig,
    PredictionConfig,
    WorkerPrediction,
    forward_pass_config,
    resolve_prediction,
    unsupported_features,
)
from ..estimators import config_layout
from ..models import ModelSpec, load_model
from ..systems import load_system, resolve_version
from ._deployment import Deployment, Role, Transfer
from ._estimators import SHARED, EstimatorCache
from ._op_level_prices import OpLevelPrices, unpriced_steps
from ._pool_size import PoolSize, kv_bytes_per_token, pool_size
from ._resolved import (
    Resolved,
    ResolvedRole,
    cache_mode,
    configured_provenance,
    measured_provenance,
)
from ._simple_prices import fixed_steps, polynomial_steps


SPLIT_ROLES = ("prefill", "decode")
# The reference sizes transfers with this cache type unless one is named.
TRANSFER_CACHE_MODE = "bfloat16"


class _Sized(NamedTuple):
    """One role of one configuration before its prices are known."""

    name: str
    worker: WorkerPrediction
    record: ForwardPassConfig
    version: str
    size: PoolSize
    context_length: int
    max_model_len: int | None


def resolve_deployment(config: PredictionConfig) -> Resolved:
    """The deployment that `config` describes; raises the first reason against it."""
    found = resolve_deployments([config])[0]
    if isinstance(found, AisimError):
        raise found
    return found


def resolve_deployments(
    configs: Sequence[PredictionConfig], *, cache: EstimatorCache = SHARED
) -> list[Resolved | AisimError]:
    """The deployment of every configuration, or the reason why there is none.

    Layouts of one model on one engine are compiled together, and equal layouts share one
    set of prices.
    """
    filled = [resolve_prediction(config) for config in configs]
    sized: list[list[_Sized] | AisimError] = [_sized_or_reason(c) for c in filled]
    wanted: dict[bool, dict[ForwardPassConfig, None]] = {False: {}, True: {}}
    for config, roles in zip(filled, sized, strict=True):
        if not isinstance(roles, AisimError):
            for role in roles:
                if role.worker.timing.type == "default":
                    wanted[_apart(config)][role.record] = None
    prices = {
        (record, apart): found
        for apart, records in wanted.items()
        for record, found in zip(
            records, cache.prices(list(records), apart=apart), strict=True
        )
    }
    return [
        roles if isinstance(roles, AisimError) else _joined(config, roles, prices)
        for config, roles in zip(filled, sized, strict=True)
    ]


def _apart(config: PredictionConfig) -> bool:
    return config.engine.pricing == "per_request"


def _sized_or_reason(config: PredictionConfig) -> list[_Sized] | AisimError:
    try:
        refused = unsupported_features(config)
        if refused:
            raise UnsupportedError(refused[0])
        return [_sized(config, name) for name in _role_names(config)]
    except AisimError as error:
        return error


def _role_names(config: PredictionConfig) -> tuple[str, ...]:
    return ("aggregated",) if config.engine.mode == "aggregated" else SPLIT_ROLES


def _sized(config: PredictionConfig, name: str) -> _Sized:
    engine = config.engine
    worker: WorkerPrediction = getattr(engine.workers, name)
    record = forward_pass_config(engine, name)
    spec = load_model(record.model)
    load_system(record.system, record.systems_paths)
    version = resolve_version(
        record.system, record.backend, record.backend_version, record.systems_paths
    )
    asked = worker.context_length or engine.context_length
    # Configured times say nothing about the model, so its limit need not hold for them.
    enforced = worker.timing.type == "default" and not engine.compat
    context = _context_length(spec, asked, enforced=enforced)
    if engine.enable_chunked_prefill is False and engine.backend == "sglang":
        raise InvalidInputError(
            "engine.enable_chunked_prefill: sglang cannot be simulated without; remove it"
        )
    limited = engine.backend == "vllm" or asked != "max"
    try:
        size = pool_size(record, worker)
    except AisimError as error:
        raise type(error)(f"engine.workers.{name}: {error}") from error
    return _Sized(
        name, worker, record, version, size, context, context if limited else None
    )


def _context_length(
    spec: ModelSpec, asked: int | Literal["max"], *, enforced: bool
) -> int:
    """Tokens of prompt and answer; `enforced`: not beyond what the model states."""
    stated = spec.context_length
    if asked == "max":
        if stated < 1:
            raise InvalidInputError(
                f"engine.context_length: {spec.name} states no context; give a number"
            )
        return stated
    if enforced and 0 < stated < asked:
        raise InvalidInputError(
            f"engine.context_length: {asked} tokens exceed the {stated} of {spec.name}; "
            "use max, or a local config.json whose max_position_embeddings is extended"
        )
    return asked


def _joined(
    config: PredictionConfig,
    sized: Sequence[_Sized],
    prices: dict[tuple[ForwardPassConfig, bool], OpLevelPrices | AisimError],
) -> Resolved | AisimError:
    roles: dict[str, Role] = {}
    resolved: dict[str, ResolvedRole] = {}
    for one in sized:
        found = prices.get((one.record, _apart(config)))
        if isinstance(found, AisimError):
            return found
        roles[one.name] = _role(config, one, found)
        resolved[one.name] = _resolved_role(one, found)
    transfer = _transfer(config, sized[0].record)
    decode = roles.get("decode") or roles["aggregated"]
    policy = config.engine.backend
    return Resolved(
        Deployment(policy, decode, roles.get("prefill"), transfer), resolved
    )


def _role(config: PredictionConfig, one: _Sized, prices: OpLevelPrices | None) -> Role:
    engine, worker, record = config.engine, one.worker, one.record
    shape, limits, cache = worker.parallelism, worker.scheduler, worker.kv_cache
    assert cache.block_size is not None  # filled in by resolve_prediction
    timing = worker.timing
    if prices is not None:
        steps = unpriced_steps(prices)
    elif timing.type == "fixed":
        steps = fixed_steps(timing.prefill_ms, timing.decode_ms)
    else:
        steps = polynomial_steps(one.size.blocks * cache.block_size)
    layout = config_layout(record)
    gpus = layout.gpus
    if engine.compat:
        gpus //= layout.pp  # the reference does not count pipeline stages
    return Role(
        workers=shape.replicas,
        ranks=shape.attention_data,
        max_batched_tokens=limits.max_batched_tokens,
        max_sequences=limits.max_sequences,
        block_size=cache.block_size,
        num_blocks=one.size.blocks,
        steps=steps,
        max_model_len=one.max_model_len,
        chunked_prefill=engine.enable_chunked_prefill is not False,
        prefix_caching=cache.prefix_caching,
        prefill_schedule_interval=limits.prefill_schedule_interval,
        prefill_decode_interval=limits.prefill_decode_interval,
        startup_ms=worker.startup_seconds * 1000.0,
        acceptance=tuple(acceptance_rates(engine.nextn, engine.nextn_accepted)),
        gpus_per_worker=gpus,
        prices=prices,
    )


def acceptance_rates(drafts: int, accepted: float | None) -> Iterator[float]:
    """Conditional acceptance of each draft token when `accepted` hold on average.

    1 for the first floor(accepted), then the fraction that is left, then 0.
    """
    for i in range(drafts):
        yield min(max((accepted or 0.0) - i, 0.0), 1.0)


def _resolved_role(one: _Sized, prices: OpLevelPrices | None) -> ResolvedRole:
    cache = one.worker.kv_cache
    assert cache.block_size is not None  # filled in by resolve_prediction
    if prices is None:
        provenance = configured_provenance(one.worker.timing.type)
        chosen = None
    else:
        provenance = measured_provenance(prices.batch.pricer.tables.version)
        chosen = cache_mode(one.record)
    return ResolvedRole(
        record=one.record,
        layout=config_layout(one.record),
        version=one.version,
        num_blocks=one.size.blocks,
        block_size=cache.block_size,
        context_length=one.context_length,
        max_model_len=one.max_model_len,
        capacity=one.size.capacity,
        cache_mode=chosen,
        provenance=provenance,
    )


def _transfer(config: PredictionConfig, prefill: ForwardPassConfig) -> Transfer:
    """The hand-over; its bytes only matter where a bandwidth is given."""
    given = config.engine.kv_transfer
    if given is None or given.bandwidth_gb_per_second is None:
        return Transfer()
    each = given.bytes_per_token
    if each == "auto":
        # What one prefill rank holds; pipeline stages do not divide it.
        each = kv_bytes_per_token(prefill, assumed=TRANSFER_CACHE_MODE)
    return Transfer(
        bytes_per_token=float(each),
        bandwidth_gb_per_s=given.bandwidth_gb_per_second,
        full_prompt=given.timing_mode == "full_prompt",
    )
