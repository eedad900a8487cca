"""What one forward pass costs: estimators over measured tables."""

from ._batch import OpLevelBatch as OpLevelBatch
from ._batch import compile_batch as compile_batch
from ._best_available import best_available as best_available
from ._breakdown import OperationPrice as OperationPrice
from ._components import HardwareSurface as HardwareSurface
from ._components import hardware_rates as hardware_rates
from ._components import hardware_surface as hardware_surface
from ._hold_region import decode_surface as decode_surface
from ._hold_region import prefill_surface as prefill_surface
from ._op_level import OpLevelModel as OpLevelModel
from ._op_level import config_layout as config_layout
from ._surface import OpLevelSurface as OpLevelSurface
