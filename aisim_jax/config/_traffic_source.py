"""Where requests come from: fixed shapes, sessions of several turns, or a trace."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from ._problems import problem
from ._record import U64, Count, NonNegative, Real, Record, Text, Whole
from ._variants import ByType


class ImagePool(Record):
    """Images drawn from a fixed set."""

    pool: Count = Field(description="Distinct images.")


class ImageInput(Record):
    """Images of every request; not simulated yet."""

    height: Count = Field(description="Pixels.")
    width: Count = Field(description="Pixels.")
    count: Count = Field(default=1, description="Images of a request.")
    encoding: Literal["png", "jpeg"] = Field(default="png", description="File format.")
    identity: Literal["unique"] | ImagePool = Field(
        default="unique", description="Whether requests share images."
    )
    min_pixels: Count | None = Field(default=None, description="Smallest, pixels.")
    max_pixels: Count | None = Field(default=None, description="Largest, pixels.")


class SyntheticSource(Record):
    """Independent requests of one shape."""

    omitted: ClassVar[frozenset[str]] = frozenset(
        {"random_range_ratio", "lengths_seed"}
    )

    type: Literal["synthetic"] = Field(default="synthetic", description="Kind.")
    input_tokens: Count = Field(default=1024, description="Prompt length.")
    output_tokens: Count = Field(default=128, description="Generated length.")
    images: ImageInput | None = Field(default=None, description="Images, if any.")
    cached_prefix_tokens: Whole = Field(
        default=0, description="Leading prompt tokens that all requests share."
    )
    random_range_ratio: Annotated[Real, Field(ge=0, le=1)] = Field(
        default=1.0,
        description="Lengths are uniform integers from this share of the length up to "
        "the length; 1 = all equal. An addition to the reference's schema.",
    )
    lengths_seed: U64 = Field(
        default=42,
        description="Seed of the lengths; only with random_range_ratio below 1. An "
        "addition to the reference's schema.",
    )

    @model_validator(mode="after")
    def _check(self) -> SyntheticSource:
        if self.cached_prefix_tokens > self.input_tokens:
            raise problem(
                "prefix_above_prompt",
                "cached_prefix_tokens",
                f"is {self.cached_prefix_tokens}, above input_tokens = "
                f"{self.input_tokens}",
            )
        if self.random_range_ratio == 1 and self.lengths_seed != 42:
            raise problem(
                "seed_without_draw",
                "lengths_seed",
                "only applies with random_range_ratio below 1",
            )
        return self


class SessionShape(Record):
    """What the turns of a session have in common."""

    turns: Annotated[int, Field(strict=True, ge=2)] = Field(
        default=4, description="Turns of a session, 2 or more."
    )
    shared_prefix_ratio: Annotated[Real, Field(ge=0, le=1)] = Field(
        default=0.0, description="Share of the first prompt that a group shares."
    )
    prefix_groups: Whole = Field(
        default=0, description="Groups; positive when a prefix is shared."
    )
    inter_turn_delay_ms: NonNegative = Field(
        default=0.0, description="Pause between an answer and the next turn, ms."
    )

    @model_validator(mode="after")
    def _check(self) -> SessionShape:
        if self.shared_prefix_ratio > 0 and not self.prefix_groups:
            raise problem(
                "prefix_needs_groups",
                "prefix_groups",
                f"must be 1 or more with shared_prefix_ratio = "
                f"{self.shared_prefix_ratio}, got 0",
            )
        return self


class SyntheticSessionSource(Record):
    """Sessions whose prompts grow by the previous answer and new input."""

    type: Literal["synthetic-session"] = Field(description="Kind.")
    new_input_tokens_per_turn: Count = Field(
        default=1024, description="New prompt tokens of a turn."
    )
    output_tokens_per_turn: Count = Field(
        default=128, description="Generated tokens of a turn."
    )
    session: SessionShape = Field(description="Turns and what they share.")


TraceFormat = Literal[
    "mooncake",
    "mooncake-delta",
    "agentic_mooncake",
    "applied_compute_agentic",
    "dynamo",
    "weka",
    "csv",
    "jsonl",
    "azure",
    "burstgpt",
    "vidur",
    "servegen",
]
MOONCAKE_FORMATS = (
    "mooncake",
    "mooncake-delta",
    "agentic_mooncake",
    "applied_compute_agentic",
)
AGENTIC_FORMATS = ("agentic_mooncake", "dynamo", "weka")


class TraceSource(Record):
    """Requests that were recorded."""

    omitted: ClassVar[frozenset[str]] = frozenset({"seed"})

    type: Literal["trace"] = Field(description="Kind.")
    paths: tuple[Text, ...] = Field(
        description="One file; servegen takes its rates file and its lengths file. A "
        "relative path is looked up in the working directory, then beside the "
        "configuration file."
    )
    format: TraceFormat = Field(
        default="mooncake",
        description="Layout of the file. csv, jsonl, azure, burstgpt, vidur and servegen "
        "are additions to the reference's schema.",
    )
    block_size: Count | None = Field(
        default=None,
        description="Prompt tokens of one hash id; null = 512. Mooncake layouts only.",
    )
    nested_timestamp_basis: Literal["auto", "absolute", "relative"] | None = Field(
        default=None, description="How nested instants count; weka only."
    )
    seed: U64 = Field(
        default=42,
        description="Seed of the requests drawn from servegen rates. An addition to the "
        "reference's schema.",
    )

    @model_validator(mode="after")
    def _check(self) -> TraceSource:
        if not self.paths or not all(path.strip() for path in self.paths):
            raise problem("no_trace_path", "paths", "needs at least one file name")
        wanted = 2 if self.format == "servegen" else 1
        if self.format != "dynamo" and len(self.paths) != wanted:
            files = "one file" if wanted == 1 else "a rates file and a lengths file"
            raise problem(
                "trace_paths",
                "paths",
                f"must name {files} for format {self.format}, got {len(self.paths)}",
            )
        if self.block_size is not None and self.format not in MOONCAKE_FORMATS:
            raise problem(
                "block_size_needs_mooncake",
                "block_size",
                f"does not apply to format {self.format}; remove it",
            )
        if self.nested_timestamp_basis is not None and self.format != "weka":
            raise problem(
                "basis_needs_weka",
                "nested_timestamp_basis",
                f"only applies to format weka, got {self.format}",
            )
        if self.seed != 42 and self.format != "servegen":
            raise problem(
                "seed_without_draw",
                "seed",
                f"only applies to format servegen, got {self.format}",
            )
        return self


Source = Annotated[
    SyntheticSource | SyntheticSessionSource | TraceSource, ByType("synthetic")
]
