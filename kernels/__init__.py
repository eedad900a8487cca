"""Pure array functions: no files, no pydantic, no logging, no defaults of the domain."""

from ._memory import RunFootprint as RunFootprint
from ._memory import RunVerdict as RunVerdict
from ._memory import activation_bytes as activation_bytes
from ._memory import kv_pool as kv_pool
from ._memory import run_footprint as run_footprint
from ._memory import run_kv_budget as run_kv_budget
from ._memory import run_verdict as run_verdict
