"""Device memory: KV capacity of a deployment and footprint of a run."""

from ._constants import COMPAT as COMPAT
from ._constants import EngineMemory as EngineMemory
from ._constants import MemoryConstants as MemoryConstants
from ._fractions import serving_fraction as serving_fraction
from ._fractions import sglang_static_fraction as sglang_static_fraction
from ._length_curve import KvCurve as KvCurve
from ._length_curve import kv_curve as kv_curve
from ._run_memory import RunMemory as RunMemory
from ._run_memory import run_memory as run_memory
from ._weights import weight_bytes as weight_bytes
