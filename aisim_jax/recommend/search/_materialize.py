"""The concrete predictions of one branch, without validating each from scratch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aisim_jax.config import (
    PredictionConfig,
    RecommendationConfig,
    locate_traces,
    materialize,
    pin,
    resolve_prediction,
)

from ._records import Branch, RoleSetting
from ._space import KNOB_PATHS, LOAD, SIZES, BranchSpace


class Template:
    """Predictions of one branch: searched parts are replaced, the rest is shared."""

    def __init__(
        self,
        config: RecommendationConfig,
        branch: Branch,
        space: BranchSpace,
        context_length: int,
        beside: Path | None,
    ) -> None:
        """context_length: tokens, what `max` means. beside: the folder of traces."""
        choices: dict[str, Any] = {
            "engine.mode": branch.mode,
            "engine.backend": branch.backend,
        }
        for role, own in space.roles.items():
            place = f"engine.workers.{role}"
            choices[f"{place}.parallelism"] = {}
            for name, path in KNOB_PATHS.items():
                value = getattr(own.knobs[0], name)
                if value is not None:
                    choices[f"{place}.{path}"] = value
        self._field = space.load_field
        if self._field is not None:
            choices[LOAD + self._field] = space.loads[0]
        if self._field == "fraction":
            self._field = "concurrency"
            choices[f"{LOAD}concurrency"] = 1
        # A relative stop depends on the load: it is resolved once the load is set.
        self._stop = config.traffic.stop
        base = materialize(config, choices)
        self._base = _with_traces(pin(base, branch.version, context_length), beside)

    def prediction(
        self, roles: Mapping[str, RoleSetting], load: float | None = None
    ) -> PredictionConfig:
        """The prediction of a candidate; None: the first value of the load."""
        engine = self._base.engine
        workers = {
            role: _set_worker(getattr(engine.workers, role), setting)
            for role, setting in roles.items()
        }
        engine = engine.model_copy(
            update={"workers": engine.workers.model_copy(update=workers)}
        )
        update: dict[str, Any] = {"engine": engine}
        if self._field is not None and load is not None:
            traffic = self._base.traffic
            changed = traffic.load.model_copy(update={self._field: load})
            update["traffic"] = traffic.model_copy(
                update={"load": changed, "stop": self._stop}
            )
        return resolve_prediction(self._base.model_copy(update=update))


def _with_traces(config: PredictionConfig, beside: Path | None) -> PredictionConfig:
    """Traces that lie beside the configuration are named in full: the copy moves."""
    source = config.traffic.source
    if source.type != "trace" or beside is None:
        return config
    found = locate_traces(source.paths, beside)
    paths = tuple(
        given if path == Path(given).expanduser() else str(path.absolute())
        for given, path in zip(source.paths, found, strict=True)
    )
    source = source.model_copy(update={"paths": paths})
    traffic = config.traffic.model_copy(update={"source": source})
    return config.model_copy(update={"traffic": traffic})


def _set_worker(worker: Any, setting: RoleSetting) -> Any:
    shape, knobs = setting
    layout = shape.layout
    parallelism = worker.parallelism.model_copy(
        update={
            "replicas": shape.replicas,
            **{field: getattr(layout, name) for field, name in SIZES.items()},
            "prefill_context": layout.cp if layout.cp > 1 else None,
        }
    )
    scheduler = worker.scheduler.model_copy(
        update={
            "max_batched_tokens": knobs.max_batched_tokens,
            "max_sequences": knobs.max_sequences,
        }
    )
    cache = worker.kv_cache
    changed: dict[str, Any] = {"block_size": knobs.block_size}
    if knobs.memory_fraction is not None:
        changed["capacity"] = cache.capacity.model_copy(
            update={"memory_fraction": knobs.memory_fraction}
        )
    return worker.model_copy(
        update={
            "parallelism": parallelism,
            "scheduler": scheduler,
            "kv_cache": cache.model_copy(update=changed),
        }
    )
