"""Command lines that start the workers of a deployment."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple

from aisim_jax.recommend import DeploymentRecord, WorkerRecord


class LaunchCommand(NamedTuple):
    """One worker's command; `options_yaml` is a file that the command names."""

    title: str
    text: str
    options_yaml: str = ""


def launch_commands(
    row: DeploymentRecord, model: str, question: Mapping[str, Any]
) -> list[LaunchCommand]:
    """One command per kind of worker, for the engine that was priced.

    The context length is prompt plus output of the question; the KV precision is
    named whenever the sweep assumed one that the engine would not choose itself.
    """
    length = int(question["isl"]) + int(question["osl"])
    engines = {"vllm": _vllm, "sglang": _sglang, "trtllm": _trtllm}
    commands = []
    for worker in row.workers:
        build = engines[worker.backend]
        role = {"agg": "aggregated"}.get(worker.role, worker.role)
        copies = worker.workers * row.replicas
        gpus = "1 GPU" if worker.gpus == 1 else f"{worker.gpus} GPUs"
        title = f"{role} worker on {gpus}; start {copies} of them"
        if worker.cp > 1:
            title += f"; set context parallelism {worker.cp} as your version names it"
        prompt = int(question["isl"])
        tokens = _step_tokens(worker, prompt)
        words, options = build(worker, model, length, tokens, row.kv_precision)
        commands.append(LaunchCommand(title, shlex.join(words), options))
    return commands


def _step_tokens(worker: WorkerRecord, prompt: int) -> int:
    """Prompt tokens of the step that was priced; 0 where a step only decodes.

    A prefill worker takes its whole batch of prompts in one step.
    """
    if worker.role == "prefill":
        return worker.batch * prompt
    return worker.context_budget_tokens


def _vllm(
    worker: WorkerRecord, model: str, length: int, tokens: int, kv_precision: str
) -> tuple[list[str], str]:
    words = ["vllm", "serve", model, "--tensor-parallel-size", str(worker.tp)]
    if worker.pp > 1:
        words += ["--pipeline-parallel-size", str(worker.pp)]
    if worker.dp > 1:
        words += ["--data-parallel-size", str(worker.dp)]
    if worker.moe_ep > 1:
        words += ["--enable-expert-parallel"]
    words += ["--max-num-seqs", str(worker.batch), "--max-model-len", str(length)]
    if tokens:
        words += ["--max-num-batched-tokens", str(tokens + worker.batch)]
    if kv_precision == "fp8":
        words += ["--kv-cache-dtype", "fp8"]
    if worker.role != "agg":
        transfer = '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'
        words += ["--kv-transfer-config", transfer]
    return words, ""


def _sglang(
    worker: WorkerRecord, model: str, length: int, tokens: int, kv_precision: str
) -> tuple[list[str], str]:
    words = ["python", "-m", "sglang.launch_server", "--model-path", model]
    # With attention data parallelism the engine counts all ranks as its TP size.
    words += ["--tp-size", str(worker.tp * worker.dp)]
    if worker.pp > 1:
        words += ["--pp-size", str(worker.pp)]
    if worker.dp > 1:
        words += ["--dp-size", str(worker.dp), "--enable-dp-attention"]
    if worker.moe_ep > 1:
        words += ["--ep-size", str(worker.moe_ep)]
    words += ["--max-running-requests", str(worker.batch * worker.dp)]
    words += ["--context-length", str(length)]
    if tokens:
        # Like the request limit, the engine divides it over the attention ranks.
        words += ["--chunked-prefill-size", str(tokens * worker.dp)]
    if kv_precision == "fp8":
        words += ["--kv-cache-dtype", "fp8_e4m3"]
    if worker.role != "agg":
        words += ["--disaggregation-mode", worker.role]
    return words, ""


def _trtllm(
    worker: WorkerRecord, model: str, length: int, tokens: int, kv_precision: str
) -> tuple[list[str], str]:
    words = ["trtllm-serve", model, "--tp_size", str(worker.tp * worker.dp)]
    if worker.pp > 1:
        words += ["--pp_size", str(worker.pp)]
    if worker.moe_ep > 1:
        words += ["--ep_size", str(worker.moe_ep)]
    words += ["--max_batch_size", str(worker.batch), "--max_seq_len", str(length)]
    if tokens:
        words += ["--max_num_tokens", str(tokens + worker.batch)]
    options = []
    if worker.dp > 1:
        options += ["enable_attention_dp: true"]
    if kv_precision == "fp8":
        options += ["kv_cache_config:", "  dtype: fp8"]
    if worker.role != "agg":
        options += ["cache_transceiver_config:", "  backend: DEFAULT"]
    if options:
        words += ["--extra_llm_api_options", f"{worker.role}.yaml"]
    return words, "\n".join(options)
