"""Speculative decoding as a configuration: which scheme, how many draft tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from ._problems import problem
from ._record import U32, Record


class NgramParams(Record):
    """Prompt-lookup drafting."""

    num_speculative_tokens: U32 = Field(description="Draft tokens per step, 1 to 5.")

    @model_validator(mode="after")
    def _check(self) -> NgramParams:
        if not 1 <= self.num_speculative_tokens <= 5:
            raise problem(
                "ngram_token_range",
                "num_speculative_tokens",
                f"must be 1 to 5, got {self.num_speculative_tokens}",
            )
        return self


class Speculation(Record):
    """A speculative scheme that needs no draft checkpoint."""

    kind: Literal["ngram"] = Field(description="Scheme.")
    params: NgramParams = Field(description="Parameters of the scheme.")


_DRAFTED = ("draft_model", "eagle3", "dflash", "dspark")


def parse_speculation(value: Any) -> Any:
    """`{"kind": "none"}` is no speculation; schemes with a draft need its checkpoint."""
    if not isinstance(value, Mapping):
        return value
    kind = value.get("kind")
    if kind == "none" and set(value) <= {"kind", "params"} and not value.get("params"):
        return None
    if kind in _DRAFTED:
        raise PydanticCustomError(
            "speculation_needs_draft",
            "{kind} needs a draft configuration or checkpoint, which is not supported "
            "here; use ngram, or nextn for the model's own draft layers",
            {"kind": kind},
        )
    if kind != "ngram":
        raise PydanticCustomError(
            "unknown_speculation",
            "{kind} is not a scheme that can be served from this block; use ngram, or "
            "nextn for the model's own draft layers",
            {"kind": repr(kind)},
        )
    params = value.get("params")
    extra = (
        set(params) - {"num_speculative_tokens"} if isinstance(params, Mapping) else ()
    )
    if extra:
        raise problem(
            "ngram_unknown_param",
            f"params.{min(extra)}",
            "is unknown; ngram takes num_speculative_tokens alone",
        )
    return value
