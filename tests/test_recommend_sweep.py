import os

import numpy as np
import pytest
from recommend_grids import golden
from recommend_records import check_records, check_sweep, chosen, swept


MODES = {"agg": "agg", "disagg": "disagg"}
SWEEPS = (
    "sweep_qwen3_32b_fp8_h200_trtllm",
    "sweep_qwen3_32b_fp8_h200_vllm",
    "sweep_latency_qwen3_32b_fp8_h200_trtllm",
    "sweep_auto_llama31_8b_h100",
    "sweep_llama31_8b_b200_vllm",
    "sweep_llama31_70b_h100_vllm",
    "sweep_relaxed_llama31_70b_h200_trtllm",
    "sweep_qwen3_30b_a3b_h200_sglang",
    "sweep_qwen3_235b_a22b_fp8_h200_trtllm",
    "load_rate50_qwen3_32b_fp8_h200_trtllm",
    "load_rate20_deepseek_v3_h200_sglang",
)


@pytest.mark.parametrize("name", SWEEPS)
def test_compatible_sweep_equals_the_recorded_one(name):
    check_sweep(swept(name), golden(name), MODES)


@pytest.mark.needs_systems_tree
def test_compatible_sweep_on_an_imported_system():
    name = "load_rate5_qwen3_8b_l40s_vllm"
    result = swept(name, systems_paths=(os.environ["AISIM_SYSTEMS_TREE"],))
    figures = golden(name)
    for mode in MODES:
        check_records(result.best(mode), figures["top"][mode])
        check_records(result.pareto(mode), figures["pareto"][mode])
    assert chosen(result).serving_mode == figures["chosen"]


def test_named_experiments_equal_the_recorded_ones():
    from aisim_jax.recommend import COMPAT, Experiment, run_experiments

    figures = golden("exp_chunked_qwen3_32b_fp8_h200_sglang")
    config = figures["inputs"]["config"]
    common = {
        "model": "Qwen/Qwen3-32B-FP8",
        "system": "h200_sxm",
        "backend": "sglang",
        "total_gpus": 8,
        "isl": config["agg_chunked"]["isl"],
        "osl": config["agg_chunked"]["osl"],
        "ttft_ms": config["agg_chunked"]["ttft"],
        "tpot_ms": config["agg_chunked"]["tpot"],
    }
    small = config["disagg_small"]
    result = run_experiments(
        {
            "agg_chunked": Experiment(
                serving_mode="agg",
                chunked_prefill=True,
                layouts={
                    "agg": {
                        "tp": config["agg_chunked"]["agg_tp_candidates"],
                        "cp": config["agg_chunked"]["agg_cp_candidates"],
                    }
                },
                **common,
            ),
            "disagg_small": Experiment(
                serving_mode="disagg",
                layouts={"prefill": {"cp": small["prefill_cp_candidates"]}},
                parameters=COMPAT._replace(
                    prefill_max_batch=small["prefill_max_batch_size"],
                    max_prefill_workers=small["max_prefill_workers"],
                    max_decode_workers=small["max_decode_workers"],
                ),
                **common,
            ),
        },
        mode="compat",
    )
    check_sweep(result, figures, {"agg_chunked": "agg", "disagg_small": "disagg"})


def test_nothing_fits_says_how_many_bytes_are_missing():
    from aisim_jax import AisimError

    with pytest.raises(AisimError) as caught:
        swept("sweep_infeasible_llama31_405b_h100_vllm")
    message = str(caught.value)
    assert "fits in memory" in message and "bytes) per GPU" in message
    assert "relax" not in message  # memory is the reason, not the latency limits


@pytest.mark.parametrize("name", SWEEPS)
def test_complete_mode_is_never_worse(name):
    """The complete sweep keeps every point, so its best is at least the reference's.

    The compatible table rounds rates before it matches pools: allow for that rounding.
    """
    reference = chosen(swept(name))
    ours = chosen(swept(name, mode="complete"))
    if not reference.meets_targets:
        return
    rounding = 2e-3
    if swept(name).by_load:
        assert ours.gpus_used <= reference.gpus_used
    else:
        least = reference.cluster_tokens_per_s_per_gpu * (1 - rounding)
        assert ours.cluster_tokens_per_s_per_gpu >= least
    assert ours.meets_targets


def test_every_point_has_a_reason_and_the_counts_add_up():
    from aisim_jax.recommend import Reason

    result = swept("sweep_qwen3_32b_fp8_h200_vllm", mode="complete")
    evaluated = sum(e.evaluation.evaluated for e in result.experiments)
    assert sum(result.counts.values()) == evaluated
    (agg,) = (e for e in result.experiments if e.question.serving_mode == "agg")
    points, codes = agg.evaluation.table("agg"), agg.evaluation.codes[0]
    lacking = np.isin(codes, (Reason.MEMORY, Reason.KV_ROOM))
    assert lacking.any()
    assert np.all((points.missing_gib > 0) == lacking)
    assert np.all(points.tpot_ms[codes == Reason.TPOT] > agg.question.tpot_ms)
    assert np.all(points.tpot_ms[codes == Reason.MEETS] <= agg.question.tpot_ms)
    assert np.all(points.ttft_ms[codes == Reason.TTFT] > agg.question.ttft_ms)


def test_context_parallel_deployments_are_charged_by_one_footprint():
    result = swept("sweep_qwen3_30b_a3b_h200_sglang", mode="complete")
    wide = [
        e.record(row)
        for e in result.experiments
        for row in range(0, e.ranked.candidates.size, 97)
    ]
    assert any(w.cp > 1 for record in wide for w in record.workers)
    for record in wide:
        gpus = sum(w.workers * w.gpus for w in record.workers)
        assert gpus == record.gpus_per_replica
        assert record.replicas == max(8 // gpus, 1)
        rate = record.tokens_per_s / gpus
        assert record.tokens_per_s_per_gpu == pytest.approx(rate, rel=1e-12)
        filled = record.replicas * gpus / 8
        assert record.cluster_tokens_per_s_per_gpu == pytest.approx(rate * filled)


def test_a_sweep_prints_as_json_and_csv():
    import csv
    import io
    import json

    result = swept("sweep_llama31_8b_b200_vllm")
    plain = json.loads(json.dumps(result.as_dict()))
    (model,) = plain["chosen"]
    assert plain["best"][model]["agg"][0]["serving_mode"] == "agg"
    rows = list(csv.DictReader(io.StringIO(result.to_csv("pareto"))))
    assert len(rows) == sum(len(result.pareto(mode)) for mode in MODES)
    assert float(rows[0]["tokens_per_s_per_gpu"]) > 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ttft_ms": 1.0}, "the best reach TTFT"),
        (
            {"strict_sla": True, "request_latency_ms": 100.0},
            "a request latency of 100 ms",
        ),
        ({"strict_sla": True, "tpot_ms": 0.5}, "the best reach TTFT"),
    ],
)
def test_missed_limits_name_what_can_be_reached(changes, message):
    from aisim_jax import AisimError
    from aisim_jax.recommend import sweep

    question = {"gpus": 4, "isl": 1024, "osl": 128, "ttft_ms": 500.0, "tpot_ms": 20.0}
    with pytest.raises(AisimError, match=message):
        sweep(
            "meta-llama/Meta-Llama-3.1-8B",
            "b200_sxm",
            "vllm",
            **{**question, **changes},
        )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mode": "fast"}, "use complete or compat"),
        ({"database_mode": "EMPIRICAL"}, "SILICON or HYBRID"),
        ({"isl": 0}, "isl=0"),
        ({"prefix": 4000}, "prefix=4000"),
        ({"tpot_ms": -1.0}, "tpot_ms=-1.0"),
        ({"max_gpus": 4}, "caps the answer"),
        ({"max_gpus": 0, "target_request_rate": 1.0}, "max_gpus=0"),
        ({"gpus": 0}, "gpus=0"),
        ({"nextn": -1}, "nextn=-1"),
        ({"top_n": 0}, "top_n=0"),
        ({"backends": []}, "backends: nothing"),
        ({"serving_modes": ()}, "serving_modes: nothing"),
        ({"precision": {"gem": "fp8"}}, "the parts are gemm"),
        ({"target_request_rate": 1.0, "target_concurrency": 2.0}, "exactly one"),
        ({"accepted": 1.0}, "nextn=0"),
        ({"backends": "llamacpp"}, "llamacpp"),
        ({"systems": "h300"}, "h300"),
        ({"systems": "b60"}, "Intel XPU"),
        ({"models": "no/such-model"}, "no/such-model"),
        ({"layouts": {"encoder": {"tp": [1]}}}, "roles are agg"),
    ],
)
def test_bad_questions_are_refused_in_one_sentence(changes, message):
    from aisim_jax import AisimError
    from aisim_jax.recommend import sweep

    question = {"models": "Qwen/Qwen3-8B", "systems": "h200_sxm", "backends": "vllm"}
    with pytest.raises(AisimError, match=message):
        sweep(**{**question, **changes})


def test_one_output_token_is_swept_without_a_decode_phase():
    from aisim_jax.recommend import sweep

    result = sweep("Qwen/Qwen3-8B", "h200_sxm", "vllm", gpus=2, isl=512, osl=1)
    assert chosen(result).serving_mode == "agg"
    assert chosen(result).tpot_ms == 0.0 < chosen(result).requests_per_s
    assert "needs a decode phase" in result.failures["disagg"]
