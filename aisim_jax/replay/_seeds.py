"""The same prediction with other random draws."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .._errors import InvalidInputError
from ..config import PredictionConfig
from ._deployment import Deployment


def seed_fields(config: PredictionConfig) -> dict[str, dict[str, int]]:
    """Seeds of the traffic that something is drawn from, by block of the traffic."""
    source, load = config.traffic.source, config.traffic.load
    found: dict[str, dict[str, int]] = {}
    if load.type == "poisson" or load.type == "gamma":
        found["load"] = {"seed": load.seed}
    if source.type == "synthetic" and source.random_range_ratio < 1:
        found["source"] = {"lengths_seed": source.lengths_seed}
    if source.type == "trace" and source.format == "servegen":
        found["source"] = {"seed": source.seed}
    return found


def with_seed(config: PredictionConfig, shift: int) -> PredictionConfig:
    """The configuration with every seed of its traffic moved by `shift`."""
    traffic = config.traffic
    changed: dict[str, Any] = {
        block: getattr(traffic, block).model_copy(
            update={name: seed + shift for name, seed in seeds.items()}
        )
        for block, seeds in seed_fields(config).items()
    }
    return config.model_copy(update={"traffic": traffic.model_copy(update=changed)})


def draws_acceptance(deployment: Deployment) -> bool:
    """Whether speculation leaves the number of accepted tokens to chance."""
    return any(0 < rate < 1 for rate in deployment.decode.acceptance)


def with_acceptance_seed(deployment: Deployment, shift: int) -> Deployment:
    """The deployment with other draws of accepted tokens."""
    decode = deployment.decode
    moved = replace(decode, speculation_seed=decode.speculation_seed + shift)
    return replace(deployment, decode=moved)


def check_random(config: PredictionConfig, deployment: Deployment, seeds: int) -> None:
    """Refuse several seeds where nothing is random: every run would be the same."""
    if seeds > 1 and not seed_fields(config) and not draws_acceptance(deployment):
        raise InvalidInputError(
            f"evaluation.seeds: {seeds} seeds, but nothing in this prediction is random, "
            "so all would give the same answer; use a poisson or gamma load, or 1 seed"
        )
