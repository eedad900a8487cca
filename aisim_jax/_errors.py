"""What can go wrong, as types: one clear sentence each, exit code 2 in the shell.

Every message names the path or argument, the value, the limit and the remedy.
"""


class AisimError(Exception):
    """Base of everything this package raises for a reason that a user can act on."""


class InvalidInputError(AisimError, ValueError):
    """An argument, file or flag is malformed, out of range or inconsistent."""


class UnsupportedError(AisimError, NotImplementedError):
    """The request is well formed, but this model, layout or mode is not built."""


class UnknownModelError(InvalidInputError):
    """No geometry is known for the model name, and no config.json was given."""


class MissingPerfDataError(AisimError):
    """No measured table serves this operation on this system, backend and version."""


class MissingSystemFlopsError(AisimError):
    """The system has no tensor-core rate for the precision asked for."""


class UnlistedVersionError(InvalidInputError):
    """The backend version is not one of the queryable slots of this system."""


class NoKvBudgetError(InvalidInputError):
    """Weights and overheads leave no room for a KV cache."""


class InfeasibleError(AisimError):
    """Nothing in the searched space meets the request; the message says why."""


class ReplayStalledError(AisimError):
    """A request at the head of a queue can never be admitted; nothing else happens."""


class MeasurementWarning(UserWarning):
    """Measured figures in use that are known to mislead; the message says how."""
