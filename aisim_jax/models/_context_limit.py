"""How long a request of a model may be."""

from __future__ import annotations

from .._errors import InvalidInputError
from ._spec import ModelSpec


def check_context(spec: ModelSpec, tokens: int, what: str) -> None:
    """Refuse a request longer than the checkpoint's context, as engines do.

    what: how the message names the request, e.g. "isl=4000 and osl=500"
    """
    if 0 < spec.context_length < tokens:
        raise InvalidInputError(
            f"{spec.name}: {what}: a request of {tokens} tokens exceeds the "
            f"model's context of {spec.context_length}; shorten it, or give a local "
            "config.json whose max_position_embeddings is extended"
        )
