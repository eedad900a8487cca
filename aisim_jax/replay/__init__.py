"""Request-level simulation of batch scheduling.

Calling this package calls its `replay`.
"""

from .._lazy import callable_package
from ..kernels.replay import DecodeWork as DecodeWork
from ..kernels.replay import FixedPrice as FixedPrice
from ..kernels.replay import PolynomialPrice as PolynomialPrice
from ..kernels.replay import PrefillWork as PrefillWork
from ..kernels.replay import Price as Price
from ..kernels.replay import Schedule as Schedule
from ..kernels.replay import schedule_metrics as schedule_metrics
from ._admissible import Admissible as Admissible
from ._admissible import Reason as Reason
from ._admissible import admissible as admissible
from ._arrays import Scenarios as Scenarios
from ._arrays import replay as replay
from ._deployment import Deployment as Deployment
from ._deployment import Role as Role
from ._deployment import Transfer as Transfer
from ._derivatives import retimed as retimed
from ._goodput import Bounds as Bounds
from ._metrics import speeds_per_user as speeds_per_user
from ._metrics import summary as summary
from ._outcome import COMPLETED as COMPLETED
from ._outcome import REJECTED as REJECTED
from ._outcome import UNFINISHED as UNFINISHED
from ._outcome import Replayed as Replayed
from ._predict import predict as predict
from ._prediction import Prediction as Prediction
from ._prices import with_prices as with_prices
from ._refusals import restored as restored
from ._refusals import without as without
from ._resolve import resolve_deployment as resolve_deployment
from ._resolve import resolve_deployments as resolve_deployments
from ._resolved import Resolved as Resolved
from ._resolved import ResolvedRole as ResolvedRole
from ._run import replay_scenarios as replay_scenarios
from ._samples import token_gaps_ms as token_gaps_ms
from ._simple_prices import fixed_steps as fixed_steps
from ._simple_prices import polynomial_steps as polynomial_steps
from ._smooth_prices import SurfacePrice as SurfacePrice
from ._smooth_prices import role_price as role_price
from ._workload import build_workload as build_workload


callable_package(__name__, "replay")
