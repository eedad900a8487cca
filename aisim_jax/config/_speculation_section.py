"""Speculative decoding of a deployment: schemes that are checked, not yet simulated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from ._problems import problem
from ._record import U64, Count, Name, NonNegative, Record


Probability = Annotated[NonNegative, Field(le=1)]


class NgramSpeculation(Record):
    """Drafts looked up in the prompt; not simulated yet."""

    kind: Literal["ngram"] = Field(description="Scheme.")
    num_speculative_tokens: Annotated[Count, Field(ge=1, le=5)] = Field(
        description="Draft tokens, 1 to 5."
    )
    acceptance_rates: tuple[Probability, ...] = Field(
        description="Chance of each draft token once the ones before it hold."
    )
    seed: U64 = Field(default=42, description="Seed of the draws.")

    @model_validator(mode="after")
    def _check(self) -> NgramSpeculation:
        if len(self.acceptance_rates) != self.num_speculative_tokens:
            raise problem(
                "rate_per_token",
                "acceptance_rates",
                f"needs {self.num_speculative_tokens} rates, one per draft token, got "
                f"{len(self.acceptance_rates)}",
            )
        return self


class SchemeSpeculation(Record):
    """Drafts of a named scheme; not simulated yet."""

    kind: Name = Field(description="Scheme.")
    params: dict[str, Any] = Field(default={}, description="Its parameters.")
    draft_model_path: Name | None = Field(default=None, description="Draft model.")
    draft_config: dict[str, Any] | None = Field(
        default=None, description="Geometry of the draft model."
    )
    expected_accepted_tokens: NonNegative = Field(
        description="Mean draft tokens that hold."
    )
    seed: U64 = Field(default=42, description="Seed of the draws.")


def read_speculation(value: Any) -> Any:
    """Choose the record by the scheme, so that errors name one of them."""
    if isinstance(value, Mapping):
        if value.get("kind") == "ngram":
            return NgramSpeculation.model_validate(value)
        return SchemeSpeculation.model_validate(value)
    return value
