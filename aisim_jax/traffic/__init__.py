"""What arrives: requests, their lengths, instants and shared contents, as arrays."""

from ._arrivals import constant_rate_ms as constant_rate_ms
from ._arrivals import gamma_ms as gamma_ms
from ._arrivals import poisson_ms as poisson_ms
from ._contents import BlockKeys as BlockKeys
from ._contents import Contents as Contents
from ._contents import Unique as Unique
from ._hash_contents import DeltaBlocks as DeltaBlocks
from ._hash_contents import HashBlocks as HashBlocks
from ._read_trace import TraceFormat as TraceFormat
from ._read_trace import read_trace as read_trace
from ._shared_contents import SessionHistory as SessionHistory
from ._shared_contents import SharedPrefix as SharedPrefix
from ._statistics import WorkloadStatistics as WorkloadStatistics
from ._statistics import workload_statistics as workload_statistics
from ._synthetic import kv_fraction_concurrency as kv_fraction_concurrency
from ._synthetic import sessions as sessions
from ._synthetic import synthetic as synthetic
from ._synthetic import with_arrivals as with_arrivals
from ._workload import Tokenizer as Tokenizer
from ._workload import Workload as Workload
