"""Options that several commands share, spelled once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from aisim_jax._backends import BACKENDS
from aisim_jax._errors import InvalidInputError


class Format(StrEnum):
    """How an answer is printed."""

    table = "table"
    json = "json"
    csv = "csv"


class PlainFormat(StrEnum):
    """How an answer without rows is printed."""

    table = "table"
    json = "json"


AUTO = "auto"
Backend = StrEnum("Backend", list(BACKENDS))
BackendOrAuto = StrEnum("BackendOrAuto", list((*BACKENDS, AUTO)))


Model = Annotated[
    str,
    typer.Option(
        "--model", help="Hub name, local directory or config.json.", show_default=False
    ),
]
System = Annotated[
    str,
    typer.Option("--system", help="GPU system, e.g. h200_sxm.", show_default=False),
]
Engine = Annotated[
    Backend, typer.Option("--backend", help="Serving engine.", show_default=False)
]
Version = Annotated[
    str | None,
    typer.Option(
        "--backend-version",
        help="Engine version, or current, previous, next; default current.",
        show_default=False,
    ),
]
SystemsPaths = Annotated[
    list[str] | None,
    typer.Option(
        "--systems-path",
        help="Data root; repeatable, searched in order; `default` = the packaged one.",
        show_default=False,
    ),
]
PrintFormat = Annotated[Format, typer.Option("--format", help="What is printed.")]
PlainPrintFormat = Annotated[
    PlainFormat, typer.Option("--format", help="What is printed.")
]
Tp = Annotated[int, typer.Option("--tp", min=1, help="Tensor-parallel size.")]
Pp = Annotated[int, typer.Option("--pp", min=1, help="Pipeline-parallel size.")]
Dp = Annotated[int, typer.Option("--dp", min=1, help="Attention data-parallel size.")]
MoeTp = Annotated[
    int | None,
    typer.Option("--moe-tp", min=1, help="Expert tensor-parallel size; MoE models."),
]
MoeEp = Annotated[
    int | None,
    typer.Option("--moe-ep", min=1, help="Expert-parallel size; MoE models."),
]
Gemm = Annotated[
    str | None,
    typer.Option(
        "--gemm-quant", help="Precision of dense layers; default: the checkpoint's."
    ),
]
Moe = Annotated[
    str | None,
    typer.Option(
        "--moe-quant", help="Precision of experts; default: the checkpoint's."
    ),
]
Kv = Annotated[
    str | None,
    typer.Option("--kv-quant", help="Precision of the KV cache; default: inferred."),
]
OutputDir = Annotated[
    Path | None,
    typer.Option("--output-dir", help="Write result files there.", show_default=False),
]


def check_moe_quant(model: str, moe_quant: str | None) -> None:
    """Refuse a precision of experts for a model that has none."""
    from aisim_jax.models import load_model

    if moe_quant is not None and not load_model(model).is_moe:
        raise InvalidInputError(
            f"--moe-quant {moe_quant}: {model} has no experts; use --gemm-quant"
        )


def expert_sizes(
    model: str, width: int, moe_tp: int | None, moe_ep: int | None
) -> tuple[int, int]:
    """Expert sizes of a worker with `width` = tp * dp ranks; (1, 1) for dense models.

    One size alone fixes the other; none at all spreads experts over all ranks.
    """
    from aisim_jax.models import load_model

    is_moe = load_model(model).is_moe
    if moe_tp is None and moe_ep is None:
        return (1, width) if is_moe else (1, 1)
    if not is_moe:
        raise InvalidInputError(
            f"--moe-tp and --moe-ep: {model} has no experts; leave both out"
        )
    if moe_ep is None and moe_tp is not None:
        return moe_tp, max(1, width // moe_tp)
    if moe_tp is None and moe_ep is not None:
        return max(1, width // moe_ep), moe_ep
    return moe_tp or 1, moe_ep or 1
