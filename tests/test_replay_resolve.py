"""From an engine section to a deployment: every recorded description, exactly."""

from __future__ import annotations

from typing import Any

import pytest
from replay_golden import case_names, load_case
from replay_prices import prediction

from aisim_jax import AisimError
from aisim_jax._errors import (
    InvalidInputError,
    MissingPerfDataError,
    NoKvBudgetError,
    UnknownModelError,
    UnsupportedError,
)
from aisim_jax.config import load_prediction
from aisim_jax.replay import (
    Deployment,
    Resolved,
    Role,
    resolve_deployment,
    resolve_deployments,
)
from aisim_jax.replay._resolve import acceptance_rates


LLAMA: dict[str, Any] = {
    "model": "meta-llama/Meta-Llama-3.1-8B",
    "hardware": "h100_sxm",
}
V3: dict[str, Any] = {"model": "deepseek-ai/DeepSeek-V3", "backend": "sglang"}
EXPERTS: dict[str, Any] = {"model": "Qwen/Qwen3-30B-A3B"}
FIXED = {"timing": {"type": "fixed", "prefill_ms": 10.0, "decode_ms": 3.0}}


def resolved(document: dict[str, Any]) -> Resolved:
    return resolve_deployment(load_prediction(document))


def recorded(rank: dict[str, Any]) -> dict[str, Any]:
    return {
        "policy": rank["backend"],
        "max_batched_tokens": rank["max_num_batched_tokens"],
        "max_sequences": rank["max_num_seqs"],
        "prefill_schedule_interval": rank["prefill_schedule_interval"],
        "prefill_decode_interval": rank["prefill_decode_interval"],
        "block_size": rank["block_size"],
        "prefix_caching": rank["enable_prefix_caching"],
        "max_model_len": rank.get("max_model_len"),
        "num_blocks": rank["num_gpu_blocks"],
    }


def described(deployment: Deployment, role: Role) -> dict[str, Any]:
    names = recorded(dict.fromkeys(RANK)).keys() - {"policy"}
    return {
        "policy": deployment.policy,
        **{name: getattr(role, name) for name in names},
    }


RANK = (
    "backend",
    "max_num_batched_tokens",
    "max_num_seqs",
    "prefill_schedule_interval",
    "prefill_decode_interval",
    "block_size",
    "enable_prefix_caching",
    "num_gpu_blocks",
)


@pytest.mark.parametrize("name", case_names())
def test_recorded_engines_resolve_to_the_same_limits(name):
    case = load_case(name)
    answer = case.get("resolved")
    if answer is None:
        return
    found = resolved(case["config"]).deployment
    engine, topology = answer["engine"], answer["topology"]
    if "rank" in engine:
        pairs = [(engine, topology["workers"], found.decode)]
    else:
        assert found.prefill is not None
        pairs = [
            (engine["prefill"], topology["prefill"], found.prefill),
            (engine["decode"], topology["decode"], found.decode),
        ]
    for own, workers, role in pairs:
        assert described(found, role) == recorded(own["rank"])
        assert role.ranks == own["dp_size"]
        assert role.workers == workers["initial_workers"]
        assert role.startup_ms == workers["startup_delay_ms"]


def qwen(worker: dict[str, Any] | None = None, **engine: Any) -> dict[str, Any]:
    return prediction(worker, **engine)


# Blocks that the reference reports, or that its polynomial prices imply.
POOLS = {
    "llama h100": (prediction(**LLAMA), 6765),
    "tp 2": (qwen({"parallelism": {"tensor": 2}}), 27205),
    "tp 1": (qwen(), 11528),
    "latent tp 8": (
        prediction({"parallelism": {"tensor": 8, "moe_tensor": 8}}, **V3),
        1246077,
    ),
    "large budget": (qwen({"scheduler": {"max_batched_tokens": 65536}}), 10296),
    "pipeline": (qwen({"parallelism": {"pipeline": 2}}), 13573),
    "trtllm": (qwen(backend="trtllm"), 23999),
    "graphs": (
        qwen(
            {
                "kv_cache": {
                    "capacity": {
                        "type": "default",
                        "memory_fraction": 0.8,
                        "cuda_graph_reserved_bytes": 2**30,
                    }
                }
            }
        ),
        9595,
    ),
    "ranks": (
        prediction({"parallelism": {"attention_data": 4, "moe_expert": 4}}, **EXPERTS),
        18130,
    ),
    "bytes": (
        qwen(
            {
                "kv_cache": {
                    "block_size": 64,
                    "bytes_per_token": 100000,
                    "capacity": {"type": "fixed", "bytes": 10 * 2**30},
                }
            }
        ),
        1677,
    ),
    "bytes of the model": (
        qwen({"kv_cache": {"capacity": {"type": "fixed", "bytes": 2**30}}}),
        128,
    ),
}


@pytest.mark.parametrize("name", POOLS)
def test_pools_hold_the_recorded_number_of_blocks(name):
    document, blocks = POOLS[name]
    assert resolved(document).deployment.decode.num_blocks == blocks


def split(prefill: dict[str, Any], decode: dict[str, Any], **engine: Any):
    transfer = {"bandwidth_gb_per_second": 50, **engine.pop("kv_transfer", {})}
    return prediction(
        mode="disaggregated",
        kv_transfer=transfer,
        workers={"prefill": prefill, "decode": decode},
        **engine,
    )


def wide(**sizes: int) -> dict[str, Any]:
    return {"parallelism": sizes}


def cached(mode: str) -> dict[str, Any]:
    return {"timing": {"type": "default", "kvcache_quant_mode": mode}}


# Measured from the transfer times of the reference.
TRANSFERS = {
    "prefill decides": (split(wide(tensor=1), wide(tensor=2)), 262144),
    "narrower": (split(wide(tensor=2), wide(tensor=1)), 131072),
    "pipeline": (split(wide(pipeline=2), wide(pipeline=2)), 262144),
    "latent": (
        split(wide(tensor=8, moe_tensor=8), wide(tensor=8, moe_tensor=8), **V3),
        70272,
    ),
    "replicated heads": (
        split(wide(tensor=8, moe_expert=8), wide(tensor=8, moe_expert=8), **EXPERTS),
        24576,
    ),
    "ranks": (
        split(
            wide(attention_data=4, moe_expert=4),
            wide(attention_data=4, moe_expert=4),
            **EXPERTS,
        ),
        98304,
    ),
    "named type": (split(cached("fp8"), cached("bfloat16")), 131072),
    "other type": (split(cached("bfloat16"), cached("fp8")), 262144),
    "given": (split({}, {}, kv_transfer={"bytes_per_token": 1000}), 1000),
}


@pytest.mark.parametrize("name", TRANSFERS)
def test_transferred_bytes_follow_the_prefill_rank(name):
    document, each = TRANSFERS[name]
    transfer = resolved(document).deployment.transfer
    assert transfer.bytes_per_token == each
    assert transfer.bandwidth_gb_per_s == 50
    assert not transfer.full_prompt


def test_without_a_bandwidth_nothing_is_spent_on_transfers():
    document = prediction(mode="disaggregated", workers={"prefill": {}, "decode": {}})
    assert resolved(document).deployment.transfer.bandwidth_gb_per_s is None


@pytest.mark.parametrize(
    ("document", "dtype", "source"),
    [
        (qwen(), "fp8", "aisimulate_policy"),
        (qwen(model="Qwen/Qwen3-32B"), "bfloat16", "aisimulate_policy"),
        (qwen(kvcache_quant_mode="bfloat16"), "bfloat16", "user_override"),
        (
            qwen(wide(tensor=4), model="nvidia/Llama-3.1-70B-Instruct-FP8"),
            "fp8",
            "checkpoint",
        ),
    ],
)
def test_reports_say_who_chose_the_cache_type(document, dtype, source):
    found = resolved(document)
    assert found.kv_cache_precision == {
        "aggregated": {"dtype": dtype, "source": source}
    }
    assert found.provenance == {
        "aggregated": {
            "data_identity": None,
            "data_version": "0.24.0",
            "data_version_unavailable_reason": None,
            "estimator": "op_level",
            "timing_source": "aic",
        }
    }


def test_configured_times_need_no_measured_data():
    found = resolved(qwen(FIXED))
    assert found.kv_cache_precision == {}
    assert found.provenance["aggregated"] == {
        "data_version": None,
        "data_version_unavailable_reason": "configured timing does not use performance "
        "data",
        "estimator": "fixed",
        "timing_source": "configured",
    }
    polynomial = resolved(qwen({"timing": {"type": "polynomial"}}))
    assert polynomial.provenance["aggregated"]["timing_source"] == "built_in"


LIMITS: list[tuple[dict[str, Any], int | None]] = [
    ({}, 40960),
    ({"context_length": 8192}, 8192),
    ({"backend": "sglang"}, None),
    ({"backend": "trtllm"}, None),
    ({"backend": "sglang", "context_length": 8192}, 8192),
]


@pytest.mark.parametrize(("engine", "limit"), LIMITS)
def test_only_vllm_limits_the_context_unasked(engine, limit):
    found = resolved(qwen(**engine))
    assert found.deployment.decode.max_model_len == limit
    assert found.roles["aggregated"].context_length == (limit or 40960)


def test_accepted_drafts_fill_the_leading_rates():
    assert list(acceptance_rates(3, 1.25)) == [1.0, 0.25, 0.0]
    document = prediction(
        wide(tensor=8, moe_tensor=8), nextn=2, nextn_accepted=0.5, **V3
    )
    assert resolved(document).deployment.decode.acceptance == (0.5, 0.0)


def test_a_worker_counts_its_pipeline_stages_unless_the_reference_is_asked_for():
    worker = wide(tensor=2, pipeline=2, replicas=3)
    assert resolved(qwen(worker)).deployment.decode.gpus_per_worker == 4
    compat = resolved(qwen(worker, compat=True))
    assert compat.deployment.decode.gpus_per_worker == 2


REFUSALS = {
    "model": (qwen(model="nobody/nothing"), UnknownModelError, "nobody/nothing"),
    "hardware": (qwen(hardware="toaster"), InvalidInputError, "toaster"),
    "tensor size": (qwen(wide(tensor=3)), InvalidInputError, "64 attention heads"),
    "experts": (
        prediction(wide(tensor=2), **EXPERTS),
        InvalidInputError,
        "make both equal",
    ),
    "memory": (
        prediction(model="meta-llama/Llama-3.1-405B", hardware="h100_sxm"),
        NoKvBudgetError,
        r"engine\.workers\.aggregated: .*KV budget",
    ),
    "context": (
        qwen(context_length=100000),
        InvalidInputError,
        r"engine\.context_length: 100000 tokens exceed the 40960",
    ),
    "precision": (
        qwen(backend="trtllm", kvcache_quant_mode="bfloat16"),
        MissingPerfDataError,
        "bfloat16",
    ),
    "chunks": (
        qwen(backend="sglang", enable_chunked_prefill=False),
        InvalidInputError,
        "enable_chunked_prefill",
    ),
    "cache below a block": (
        qwen({"kv_cache": {"capacity": {"type": "fixed", "bytes": 1000}}}),
        NoKvBudgetError,
        "less than one block",
    ),
    "offload": (
        qwen({"kv_cache": {"host_offload": {"num_host_blocks": 10}}}),
        UnsupportedError,
        "host_offload",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_cannot_run_is_refused_with_its_reason(name):
    document, kind, words = REFUSALS[name]
    with pytest.raises(kind, match=words):
        resolved(document)


def test_many_configurations_share_layouts_and_keep_their_own_reasons():
    documents = [
        qwen(wide(tensor=1)),
        qwen(wide(tensor=3)),
        qwen(wide(tensor=4)),
        qwen({**wide(tensor=4), "scheduler": {"max_sequences": 64}}),
        qwen({**wide(tensor=2), **FIXED}),
    ]
    found = resolve_deployments([load_prediction(one) for one in documents])
    assert isinstance(found[1], AisimError)
    one, four, again, fixed = (found[i] for i in (0, 2, 3, 4))
    assert isinstance(one, Resolved)
    assert isinstance(four, Resolved)
    assert isinstance(again, Resolved)
    assert isinstance(fixed, Resolved)
    assert four.deployment.decode.prices is again.deployment.decode.prices
    assert one.deployment.decode.prices is not four.deployment.decode.prices
    assert fixed.deployment.decode.prices is None
    assert again.deployment.decode.max_sequences == 64
    alone = resolved(documents[2]).deployment.decode
    assert alone.num_blocks == four.deployment.decode.num_blocks
