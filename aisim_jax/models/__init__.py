"""Checkpoint files -> geometry and precision -> operations of one forward pass."""

from .._backends import Backend as Backend
from ._build import build_operations as build_operations
from ._build import kv_bytes_per_token_and_layer as kv_bytes_per_token_and_layer
from ._catalogue import canonical_name as canonical_name
from ._catalogue import model_names as model_names
from ._checkpoint_quantization import (
    CheckpointQuantization as CheckpointQuantization,
)
from ._constraints import check_layout as check_layout
from ._context_limit import check_context as check_context
from ._families import BUILT_FAMILIES as BUILT_FAMILIES
from ._layout import Layout as Layout
from ._load import load_model as load_model
from ._operations import AllReduce as AllReduce
from ._operations import ContextAttention as ContextAttention
from ._operations import ContextMla as ContextMla
from ._operations import Elementwise as Elementwise
from ._operations import Embedding as Embedding
from ._operations import Fallback as Fallback
from ._operations import Gemm as Gemm
from ._operations import GenerationAttention as GenerationAttention
from ._operations import GenerationMla as GenerationMla
from ._operations import MlaBmm as MlaBmm
from ._operations import MlaModule as MlaModule
from ._operations import Moe as Moe
from ._operations import MoeDispatch as MoeDispatch
from ._operations import Nccl as Nccl
from ._operations import Operation as Operation
from ._operations import OperationLists as OperationLists
from ._operations import Overlap as Overlap
from ._operations import PointToPoint as PointToPoint
from ._precision import Precision as Precision
from ._precision import resolve_precision as resolve_precision
from ._quantization import COMM_BYTES as COMM_BYTES
from ._quantization import KV_BYTES as KV_BYTES
from ._quantization import QUANT_MODES as QUANT_MODES
from ._quantization import Quant as Quant
from ._spec import ModelSpec as ModelSpec
from ._weights import resident_weight_bytes as resident_weight_bytes
