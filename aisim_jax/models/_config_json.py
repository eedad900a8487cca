"""Hugging Face config.json (and its quantisation sidecar) -> ModelSpec."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._errors import InvalidInputError
from ._checkpoint_quantization import infer_quantization
from ._families import (
    FAMILY_OF_ARCHITECTURE,
    GQA_DENSE,
    GQA_MOE,
    MLA_MOE,
    QK_NORM_ARCHITECTURES,
    UNKNOWN_FAMILY,
)
from ._quantization_shape import check_quantization_shape
from ._spec import ModelSpec


CONFIG_FILE = "config.json"
SIDECAR_FILE = "hf_quant_config.json"

# Names under which checkpoints store one number; the first present wins.
_EXPERTS = ("num_local_experts", "n_routed_experts", "moe_num_experts", "num_experts")
_TOPK = (
    "num_experts_per_tok",
    "top_k_experts",
    "moe_top_k",
    "experts_per_token",
    "num_experts_per_token",
)
_CONTEXT = (
    "max_position_embeddings",
    "model_max_length",
    "max_sequence_length",
    "seq_length",
    "n_positions",
)
_LATENT = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
_SHARED_WIDTH = (
    "shared_expert_intermediate_size",
    "moe_shared_expert_intermediate_size",
)


def read_checkpoint(path: Path) -> ModelSpec:
    """Geometry of the checkpoint at `path`: a directory or its config.json.

    A hf_quant_config.json in the same directory is read too.
    """
    file = path / CONFIG_FILE if path.is_dir() else path
    if not file.is_file():
        raise InvalidInputError(
            f"{file}: no such file; a local model needs a {CONFIG_FILE} from its "
            "checkpoint."
        )
    config = _read_json(file)
    sidecar_file = file.parent / SIDECAR_FILE
    sidecar = _read_json(sidecar_file) if sidecar_file.is_file() else None
    return parse_config(config, sidecar, name=str(path), where=str(file))


def _read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InvalidInputError(
            f"{file}: not valid JSON ({error}); restore the file from the checkpoint."
        ) from None
    if not isinstance(content, dict):
        raise InvalidInputError(
            f"{file}: holds a {type(content).__name__}, not a mapping of fields; "
            "restore the file from the checkpoint."
        )
    return content


def parse_config(
    config: Mapping[str, Any],
    sidecar: Mapping[str, Any] | None,
    *,
    name: str,
    where: str,
    source: str = "config.json",
) -> ModelSpec:
    """Geometry and precision facts of parsed checkpoint files.

    `where` names the file in error messages. The language model of a multimodal
    checkpoint lies under text_config or llm_config, whose fields win.
    """
    text = config.get("text_config") or config.get("llm_config") or {}
    if not isinstance(text, Mapping):
        raise InvalidInputError(
            f"{where}: field 'text_config' is {text!r}, but must be a mapping of "
            "fields; restore it from the checkpoint."
        )
    for section in (config, text):
        check_quantization_shape(
            section.get("quantization_config"), f"{where}: quantization_config"
        )
    check_quantization_shape(
        (sidecar or {}).get("quantization"), f"{where}: {SIDECAR_FILE} quantization"
    )
    fields = _Fields({**config, **text}, where)
    architecture = _architecture(config, where)
    family = FAMILY_OF_ARCHITECTURE.get(architecture, UNKNOWN_FAMILY)
    fields.check_family(family)
    heads = fields.required("num_attention_heads")
    hidden = fields.required("hidden_size")
    intermediate = fields.optional("intermediate_size")
    experts = fields.optional(*_EXPERTS)
    head_dim = fields.optional("head_dim", "attention_head_dim") or hidden // heads
    moe_intermediate = fields.optional("moe_intermediate_size") or intermediate
    shared_experts = fields.optional("n_shared_experts", "num_shared_experts")
    shared_width = fields.optional(*_SHARED_WIDTH) or shared_experts * moe_intermediate
    if experts and not fields.optional(*_TOPK):
        raise InvalidInputError(
            f"{where}: {experts} experts but no number of experts per token; add "
            "num_experts_per_tok."
        )
    return ModelSpec(
        name=name,
        architecture=architecture,
        family=family,
        layers=fields.layers(),
        heads=heads,
        kv_heads=fields.kv_heads(heads, family),
        head_dim=head_dim,
        hidden=hidden,
        intermediate=intermediate,
        vocab=fields.required("vocab_size"),
        context_length=fields.optional(*_CONTEXT),
        experts=experts,
        topk=fields.optional(*_TOPK) if experts else 0,
        moe_intermediate=moe_intermediate if experts else 0,
        shared_experts=shared_experts,
        shared_intermediate=shared_width,
        first_dense_layers=fields.optional("first_k_dense_replace"),
        qk_norm=architecture in QK_NORM_ARCHITECTURES,
        q_lora=fields.optional("q_lora_rank"),
        kv_lora=fields.optional("kv_lora_rank"),
        nope_dim=fields.optional("qk_nope_head_dim"),
        rope_dim=fields.optional("qk_rope_head_dim"),
        v_dim=fields.optional("v_head_dim"),
        sliding_window=fields.window(),
        checkpoint=infer_quantization(config, sidecar),
        source=source,
        config=fields.values,
    )


def _architecture(config: Mapping[str, Any], where: str) -> str:
    names = config.get("architectures")
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        raise InvalidInputError(
            f"{where}: field 'architectures' is missing or not a list of class names; "
            "restore it from the checkpoint."
        )
    return names[0]


class _Fields:
    """Typed access to the numbers of one config.json."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values = values
        self._where = where

    def required(self, name: str) -> int:
        """Positive integer; an error if absent."""
        if self.values.get(name) is None:
            raise InvalidInputError(
                f"{self._where}: field {name!r} is missing; restore it from the "
                "checkpoint."
            )
        value = self._integer(name)
        if value < 1:
            raise InvalidInputError(
                f"{self._where}: field {name!r} is {value}, but must be at least 1."
            )
        return value

    def optional(self, *names: str) -> int:
        """First of `names` that is present, 0 if none."""
        for name in names:
            if self.values.get(name) is not None:
                value = self._integer(name)
                if value < 0:
                    raise InvalidInputError(
                        f"{self._where}: field {name!r} is {value}, but must not be "
                        "negative."
                    )
                return value
        return 0

    def check_family(self, family: str) -> None:
        """Raise if a number that the family's operations need is absent."""
        if family in GQA_DENSE:
            self.required("intermediate_size")
        if family in MLA_MOE:
            for name in _LATENT:
                self.required(name)
        if family in GQA_MOE | MLA_MOE and not self.optional(*_EXPERTS):
            raise InvalidInputError(
                f"{self._where}: number of experts is missing; restore it from the "
                f"checkpoint as one of {', '.join(_EXPERTS)}."
            )

    def kv_heads(self, heads: int, family: str) -> int:
        """Key-value heads; files of plain multi-head models leave them out."""
        if family not in GQA_DENSE | GQA_MOE:
            return self.optional("num_key_value_heads")
        if self.values.get("num_key_value_heads") is None:
            return heads
        return self.required("num_key_value_heads")

    def layers(self) -> int:
        """Number of layers; some hybrids only list the kind of each."""
        for name in ("layers_block_type", "layer_types"):
            if self.values.get("num_hidden_layers") is None and self.values.get(name):
                return len(self.values[name])
        return self.required("num_hidden_layers")

    def window(self) -> int:
        """Sliding window in tokens, 0 where off."""
        if self.values.get("use_sliding_window") is False:
            return 0
        return self.optional("sliding_window")

    def _integer(self, name: str) -> int:
        value = self.values[name]
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidInputError(
                f"{self._where}: field {name!r} is {value!r}, but must be an integer."
            )
        return value
