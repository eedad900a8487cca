"""`aisim capacity`: does it fit, and how many requests fit at once?"""

from __future__ import annotations

from typing import Annotated

import typer

from aisim_jax._defaults import ISL_TOKENS, OSL_TOKENS, STEP_TOKENS

from . import _options as options
from ._render import console_width, print_renderable, print_text


def capacity(
    model: options.Model,
    system: options.System,
    backend: options.Engine,
    backend_version: options.Version = None,
    tp: options.Tp = 1,
    pp: options.Pp = 1,
    dp: options.Dp = 1,
    moe_tp: options.MoeTp = None,
    moe_ep: options.MoeEp = None,
    memory_fraction: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, help="Memory the engine may fill; default: the engine's own."
        ),
    ] = None,
    max_num_tokens: Annotated[
        int, typer.Option(min=1, help="Tokens of one forward pass.")
    ] = STEP_TOKENS,
    context_length: Annotated[
        int | None,
        typer.Option(
            min=1, help="Tokens of one request; default: the model's context."
        ),
    ] = None,
    isl: Annotated[
        int, typer.Option(min=1, help="Prompt length of the requests counted.")
    ] = ISL_TOKENS,
    osl: Annotated[
        int, typer.Option(min=0, help="Output length of the requests counted.")
    ] = OSL_TOKENS,
    block_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens of a KV block; default: the engine's own."),
    ] = None,
    gemm_quant: options.Gemm = None,
    moe_quant: options.Moe = None,
    kv_quant: options.Kv = None,
    systems_path: options.SystemsPaths = None,
    format: options.PlainPrintFormat = options.PlainFormat.table,
) -> None:
    """Show where a GPU's memory goes and what the KV cache holds."""
    from aisim_jax.memory import capacity_report
    from aisim_jax.models import Layout
    from aisim_jax.report import capacity_json, capacity_text

    options.check_moe_quant(model, moe_quant)
    report = capacity_report(
        model,
        system,
        backend.value,
        Layout(tp, pp, dp, *options.expert_sizes(model, tp * dp, moe_tp, moe_ep)),
        backend_version,
        memory_fraction=memory_fraction,
        max_num_tokens=max_num_tokens,
        context_length=context_length,
        isl=isl,
        osl=osl,
        block_tokens=block_tokens,
        precision={"gemm": gemm_quant, "moe": moe_quant, "kv": kv_quant},
        systems_paths=tuple(systems_path or ()),
    )
    if format is options.PlainFormat.json:
        print_text(capacity_json(report))
    else:
        print_renderable(capacity_text(report, console_width()))
    # No room at all, or not for the context that was asked for: the answer is no.
    asked = context_length is not None and report.refusal is not None
    if asked or report.blocks == 0:
        raise typer.Exit(1)
