"""Device memory: KV capacity of a deployment and footprint of a run."""

from ._blocks import estimate_num_gpu_blocks as estimate_num_gpu_blocks
from ._blocks import load_concurrency as load_concurrency
from ._blocks import scheduler_num_blocks as scheduler_num_blocks
from ._blocks import shape_tokens as shape_tokens
from ._blocks import steady_requests as steady_requests
from ._capacity import estimate_kv_cache as estimate_kv_cache
from ._capacity_record import KvCapacity as KvCapacity
from ._capacity_record import MemoryBreakdown as MemoryBreakdown
from ._capacity_record import ToleratedCapacity as ToleratedCapacity
from ._constants import COMPAT as COMPAT
from ._constants import EngineMemory as EngineMemory
from ._constants import MemoryConstants as MemoryConstants
from ._fractions import serving_fraction as serving_fraction
from ._fractions import sglang_static_fraction as sglang_static_fraction
from ._length_curve import KvCurve as KvCurve
from ._length_curve import kv_curve as kv_curve
from ._naive import naive_kv_bytes_per_token as naive_kv_bytes_per_token
from ._rank_loads import RankLoads as RankLoads
from ._rank_loads import rank_loads as rank_loads
from ._report import CapacityReport as CapacityReport
from ._report import capacity_report as capacity_report
from ._report import smallest_width as smallest_width
from ._run_memory import RunMemory as RunMemory
from ._run_memory import run_memory as run_memory
from ._weights import weight_bytes as weight_bytes
