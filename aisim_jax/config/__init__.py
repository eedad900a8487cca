"""What people write, as frozen pydantic records. Imports no jax."""

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
