"""Which deployment to run: exhaustive sweeps, rate matching, ranking, load sizing."""

from ._grids import TPOT_TARGETS_MS as TPOT_TARGETS_MS
from ._grids import Target as Target
from ._layouts import LayoutLists as LayoutLists
from ._layouts import candidate_layouts as candidate_layouts
from ._layouts import default_lists as default_lists
from ._parameters import COMPAT as COMPAT
from ._parameters import SweepParameters as SweepParameters
from ._pareto import pareto_front as pareto_front
from ._picking import Load as Load
from ._schedule import schedule_batch as schedule_batch
from ._schedule import schedule_xpu as schedule_xpu
