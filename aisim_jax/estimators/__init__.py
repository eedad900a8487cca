"""What one forward pass costs: estimators over measured tables."""

from ._batch import OpLevelBatch as OpLevelBatch
from ._batch import OpLevelSurface as OpLevelSurface
from ._batch import compile_batch as compile_batch
from ._breakdown import OperationPrice as OperationPrice
from ._breakdown import Query as Query
from ._breakdown import price_entries as price_entries
