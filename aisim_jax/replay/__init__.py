"""Request-level simulation of batch scheduling."""

from ._deployment import Deployment as Deployment
from ._deployment import Role as Role
from ._deployment import Transfer as Transfer
from ._outcome import COMPLETED as COMPLETED
from ._outcome import REJECTED as REJECTED
from ._outcome import UNFINISHED as UNFINISHED
from ._outcome import Replayed as Replayed
from ._prediction import Prediction as Prediction
