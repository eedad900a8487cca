"""Pure array functions: no files, no pydantic, no logging, no defaults of the domain."""

from ._aggregated import AggregatedMetrics as AggregatedMetrics
from ._aggregated import QueuePolicy as QueuePolicy
from ._aggregated import StepCounts as StepCounts
from ._aggregated import compose_aggregated as compose_aggregated
from ._aggregated_xpu import XpuQueuePolicy as XpuQueuePolicy
from ._aggregated_xpu import XpuSchedule as XpuSchedule
from ._aggregated_xpu import compose_aggregated_xpu as compose_aggregated_xpu
from ._hardware import HardwareRates as HardwareRates
from ._memory import RunFootprint as RunFootprint
from ._memory import RunVerdict as RunVerdict
from ._memory import activation_bytes as activation_bytes
from ._memory import kv_pool as kv_pool
from ._memory import run_footprint as run_footprint
from ._memory import run_kv_budget as run_kv_budget
from ._memory import run_verdict as run_verdict
from ._static import MatchedMetrics as MatchedMetrics
from ._static import RoleConstants as RoleConstants
from ._static import StaticMetrics as StaticMetrics
from ._static import compose_disaggregated as compose_disaggregated
from ._static import compose_static as compose_static
from ._static import pool_rate_per_s as pool_rate_per_s
from ._static import speculate_decode as speculate_decode
