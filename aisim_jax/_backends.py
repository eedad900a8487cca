"""The serving engines, in the order in which `auto` tries them."""

from __future__ import annotations

from typing import Literal, get_args


Backend = Literal["trtllm", "sglang", "vllm"]
BACKENDS: tuple[Backend, ...] = get_args(Backend)
