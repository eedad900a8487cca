"""What arrives: requests, their lengths, instants and shared contents, as arrays."""

from ._workload import Tokenizer as Tokenizer
from ._workload import Workload as Workload
