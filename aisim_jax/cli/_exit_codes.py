"""What a command returns: 0 answered, 1 no answer exists, 2 bad input, 130 interrupted."""

from __future__ import annotations

from aisim_jax._errors import AisimError, InfeasibleError, ReplayStalledError


EXIT_INFEASIBLE = 1
EXIT_INVALID = 2
EXIT_INTERRUPTED = 130


def exit_code(error: AisimError) -> int:
    """1 when the question is fine and has no answer, else 2."""
    unanswered = isinstance(error, InfeasibleError | ReplayStalledError)
    return EXIT_INFEASIBLE if unanswered else EXIT_INVALID
