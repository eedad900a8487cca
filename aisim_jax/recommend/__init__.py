"""Which deployment to run: exhaustive sweeps, rate matching, ranking, load sizing.

Calling this package calls `recommend`, the search by replay, which loads on first use.
"""

from .._lazy import callable_package, lazy_names
from ._differentiable import aggregated_metrics as aggregated_metrics
from ._estimate import estimate as estimate
from ._experiment import Experiment as Experiment
from ._grids import TPOT_TARGETS_MS as TPOT_TARGETS_MS
from ._grids import Target as Target
from ._layouts import LayoutLists as LayoutLists
from ._layouts import candidate_layouts as candidate_layouts
from ._layouts import default_lists as default_lists
from ._parameters import COMPAT as COMPAT
from ._parameters import SweepParameters as SweepParameters
from ._pareto import pareto_front as pareto_front
from ._picking import Load as Load
from ._reasons import REASON_NAMES as REASON_NAMES
from ._reasons import Reason as Reason
from ._records import DeploymentRecord as DeploymentRecord
from ._records import WorkerRecord as WorkerRecord
from ._result import ExperimentResult as ExperimentResult
from ._result import SweepResult as SweepResult
from ._result import records_csv as records_csv
from ._run import run_experiments as run_experiments
from ._schedule import schedule_batch as schedule_batch
from ._schedule import schedule_xpu as schedule_xpu
from ._single_points import PointEstimate as PointEstimate
from ._single_points import PoolChoice as PoolChoice
from ._steady_state import SteadyState as SteadyState
from ._steady_state import point_schedule as point_schedule
from ._steady_state import steady_state as steady_state
from ._surfaces import SurfaceCache as SurfaceCache
from ._sweep import sweep as sweep


__getattr__ = lazy_names(__name__, {"recommend": ".search"})
callable_package(__name__, "recommend")
