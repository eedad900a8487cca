"""`aisim estimate`: how long does one forward pass take, and where does it go?"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated

import typer

from aisim_jax._errors import InvalidInputError

from . import _options as options
from ._compile_cache import enable_compile_cache
from ._render import print_renderable, print_text


class DatabaseMode(StrEnum):
    """What prices an operation."""

    SILICON = "SILICON"
    HYBRID = "HYBRID"
    SOL = "SOL"


def estimate(
    model: options.Model,
    system: options.System,
    backend: options.Engine,
    backend_version: options.Version = None,
    tp: options.Tp = 1,
    pp: options.Pp = 1,
    dp: options.Dp = 1,
    moe_tp: options.MoeTp = None,
    moe_ep: options.MoeEp = None,
    prefill: Annotated[
        str | None,
        typer.Option(
            help="Prefill requests x new tokens of each, e.g. 1x2048.",
            show_default=False,
        ),
    ] = None,
    prefix: Annotated[
        int, typer.Option(min=0, help="Cached tokens of each prefill request.")
    ] = 0,
    decode: Annotated[
        str | None,
        typer.Option(
            help="Decode requests x context of each, e.g. 64x4096.", show_default=False
        ),
    ] = None,
    gemm_quant: options.Gemm = None,
    moe_quant: options.Moe = None,
    kv_quant: options.Kv = None,
    database_mode: Annotated[
        DatabaseMode, typer.Option(help="Measured data, or the speed of light.")
    ] = DatabaseMode.SILICON,
    systems_path: options.SystemsPaths = None,
    format: options.PlainPrintFormat = options.PlainFormat.table,
) -> None:
    """Price one forward pass of one rank, operation by operation."""
    if prefill is None and decode is None:
        raise InvalidInputError(
            "nothing to price: give --prefill REQUESTSxTOKENS, --decode "
            "REQUESTSxCONTEXT, or both for a mixed step"
        )
    new_requests, new_tokens = _pair("--prefill", prefill)
    old_requests, context = _pair("--decode", decode)
    if prefix and prefill is None:
        raise InvalidInputError(
            f"--prefix {prefix} is the cached part of --prefill requests; give "
            "--prefill, or leave it out"
        )
    options.check_moe_quant(model, moe_quant)
    _check_lengths(model, new_tokens, prefix, context)
    sizes = options.expert_sizes(model, tp * dp, moe_tp, moe_ep)
    config = {
        "model": model,
        "system": system,
        "backend": backend.value,
        "backend_version": backend_version,
        "worker_type": "aggregated",
        "tp": tp,
        "pp": pp,
        "attention_dp": dp,
        "moe_tp_size": sizes[0] if sizes != (1, 1) else None,
        "moe_ep_size": sizes[1] if sizes != (1, 1) else None,
        "gemm_quant_mode": gemm_quant,
        "moe_quant_mode": moe_quant,
        "kvcache_quant_mode": kv_quant,
        "database_mode": database_mode.value,
        "systems_paths": list(systems_path or ()),
    }
    enable_compile_cache()
    from aisim_jax.estimators import best_available
    from aisim_jax.report import (
        EstimateReport,
        OperationRow,
        estimate_json,
        estimate_text,
        layout_words,
    )

    worker = best_available(config)
    answer = worker.estimate_forward_pass_detailed(
        {
            "num_prefill_requests": new_requests,
            "sum_prefill_tokens": new_requests * new_tokens,
            "sum_prefill_kv_tokens": new_requests * prefix,
            "num_decode_requests": old_requests,
            "sum_decode_kv_tokens": old_requests * context,
        }
    )
    data = answer["data"]
    report = EstimateReport(
        worker=f"{worker.spec.name} · {layout_words(worker.layout)} · "
        f"{data['backend']} {data['version']} on {data['system']}",
        step=_step(new_requests, new_tokens, prefix, old_requests, context),
        latency_ms=answer["total_ms"],
        operations=tuple(
            OperationRow(one["name"], one["ms"], one["origin"])
            for one in answer["operations"]
        ),
        data=data,
    )
    if format is options.PlainFormat.json:
        print_text(estimate_json(report))
    else:
        print_renderable(estimate_text(report))


def _check_lengths(model: str, new_tokens: int, prefix: int, context: int) -> None:
    from aisim_jax.models import check_context, load_model

    spec = load_model(model)
    check_context(spec, new_tokens + prefix, "--prefill and --prefix")
    check_context(spec, context, "--decode")


def _pair(flag: str, text: str | None) -> tuple[int, int]:
    """`16x4096` -> (16, 4096); (0, 0) when the flag was not given."""
    if text is None:
        return 0, 0
    found = re.fullmatch(r"([1-9]\d*)[x×]([1-9]\d*)", text.strip())
    if found is None:
        raise InvalidInputError(
            f"{flag} {text!r}: give REQUESTSxTOKENS with positive whole numbers, e.g. "
            "16x4096"
        )
    return int(found[1]), int(found[2])


def _step(
    new_requests: int, new_tokens: int, prefix: int, old_requests: int, context: int
) -> str:
    parts = []
    if new_requests:
        cached = f" ({prefix:,} more cached)" if prefix else ""
        parts.append(f"prefill {new_requests:,} × {new_tokens:,} tokens{cached}")
    if old_requests:
        parts.append(f"decode {old_requests:,} × {context:,} tokens of context")
    return " + ".join(parts)
