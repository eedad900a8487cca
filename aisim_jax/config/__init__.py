"""What people write, as frozen pydantic records. Imports no jax.

Predictions and recommendations load on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aisim_jax._lazy import lazy_names

from ._correction import CorrectionConfig as CorrectionConfig
from ._correction import FactorBounds as FactorBounds
from ._documents import config_record as config_record
from ._documents import dump_config as dump_config
from ._documents import load_config as load_config
from ._documents import read_document as read_document
from ._estimator import EstimatorConfig as EstimatorConfig
from ._estimator import FeatureWeights as FeatureWeights
from ._estimator import InterpolationConfig as InterpolationConfig
from ._estimator import OpLevelConfig as OpLevelConfig
from ._forward_pass import ForwardPassConfig as ForwardPassConfig
from ._learned import LearnedConfig as LearnedConfig
from ._learned import SelectorConfig as SelectorConfig
from ._normalize import normalize_config as normalize_config
from ._problems import ConfigError as ConfigError
from ._regression import RegressionConfig as RegressionConfig
from ._regression import RegressionFit as RegressionFit
from ._regression import RegressionSampling as RegressionSampling
from ._speculation import Speculation as Speculation


if TYPE_CHECKING:
    from ._domains import Choices as Choices
    from ._domains import IntegerRange as IntegerRange
    from ._domains import NumericRange as NumericRange
    from ._domains import expand as expand
    from ._loading import load_prediction as load_prediction
    from ._loading import load_recommendation as load_recommendation
    from ._loading import locate_traces as locate_traces
    from ._materialize import materialize as materialize
    from ._overrides import apply_overrides as apply_overrides
    from ._pass_config import forward_pass_config as forward_pass_config
    from ._prediction import PredictionConfig as PredictionConfig
    from ._recommendation import RecommendationConfig as RecommendationConfig
    from ._recommendation import recommendation_notes as recommendation_notes
    from ._resolve import pin as pin
    from ._resolve import resolve_prediction as resolve_prediction
    from ._saving import dump_prediction as dump_prediction
    from ._saving import plain as plain
    from ._saving import save_prediction as save_prediction
    from ._search_space import ParallelSpace as ParallelSpace
    from ._search_space import parallel_space as parallel_space
    from ._search_space import search_domains as search_domains
    from ._unsupported import unsupported_features as unsupported_features
    from ._worker_section import WorkerPrediction as WorkerPrediction


_HOMES = {
    "Choices": "._domains",
    "IntegerRange": "._domains",
    "NumericRange": "._domains",
    "ParallelSpace": "._search_space",
    "PredictionConfig": "._prediction",
    "RecommendationConfig": "._recommendation",
    "WorkerPrediction": "._worker_section",
    "apply_overrides": "._overrides",
    "dump_prediction": "._saving",
    "expand": "._domains",
    "forward_pass_config": "._pass_config",
    "load_prediction": "._loading",
    "load_recommendation": "._loading",
    "locate_traces": "._loading",
    "materialize": "._materialize",
    "parallel_space": "._search_space",
    "pin": "._resolve",
    "plain": "._saving",
    "recommendation_notes": "._recommendation",
    "resolve_prediction": "._resolve",
    "save_prediction": "._saving",
    "search_domains": "._search_space",
    "unsupported_features": "._unsupported",
}

__getattr__ = lazy_names(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
