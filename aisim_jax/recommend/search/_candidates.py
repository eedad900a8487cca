"""All candidates of a search, those that must behave alike folded into one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from aisim_jax._errors import AisimError, UnsupportedError
from aisim_jax.config import RecommendationConfig, expand, unsupported_features
from aisim_jax.models import load_model
from aisim_jax.replay import with_prices
from aisim_jax.systems import resolve_version

from ._branch import branch_pool
from ._records import Branch, Candidate, Dropped


class Pool(NamedTuple):
    """Distinct candidates, and what was dropped before any replay."""

    candidates: tuple[Candidate, ...]
    dropped: tuple[Dropped, ...]

    @property
    def legal(self) -> int:
        """Candidates before folding, the dropped ones included."""
        kept = sum(one.stands_for for one in self.candidates)
        return kept + sum(one.candidates for one in self.dropped)


def build_pool(config: RecommendationConfig, beside: Path | None = None) -> Pool:
    """Enumerate every branch.

    An engine without data drops its branch; when no branch is left its error is raised.
    beside: where trace files are looked for after the working directory.
    """
    refused = unsupported_features(config)
    if refused:
        raise UnsupportedError(refused[0])
    candidates: list[Candidate] = []
    dropped: list[Dropped] = []
    errors: list[AisimError] = []
    spec = load_model(config.engine.model)
    limit = config.engine.context_length
    context_tokens = spec.context_length if limit == "max" else limit
    branches = [
        Branch(mode, backend, "")
        for mode, backend in itertools.product(
            expand(config.engine.mode), expand(config.engine.backend)
        )
    ]
    for branch in branches:
        try:
            branch = branch._replace(version=_version(config, branch.backend))
            found, lost = branch_pool(
                config,
                branch,
                context_tokens,
                has_experts=spec.is_moe,
                beside=beside,
            )
        except AisimError as error:
            errors.append(error)
            lost = [_lost_branch(branch, error)]
        else:
            candidates += found
        dropped += lost
    if len(errors) == len(branches):
        raise errors[0]
    return Pool(tuple(_priced(candidates)), tuple(dropped))


def _priced(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates with one set of prices per layout for all of their workloads."""
    scenarios = with_prices([(one.workload, one.deployment) for one in candidates])
    return [
        replace(one, deployment=deployment)
        for one, (_, deployment) in zip(candidates, scenarios, strict=True)
    ]


def _version(config: RecommendationConfig, backend: str) -> str:
    engine = config.engine
    request = engine.backend_version
    if isinstance(request, dict):
        request = request.get(backend)
    system = engine.hardware
    if system == "auto":
        system = config.optimization.hardware or ""
    return resolve_version(system, backend, request, engine.systems_paths or ())


def _lost_branch(branch: Branch, error: AisimError) -> Dropped:
    return Dropped(
        "unsupported",
        "candidate_materialization",
        str(error),
        branch,
        None,
        None,
        0,
    )
