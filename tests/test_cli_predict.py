"""`aisim predict`: answers, result folders, reasons for refusals, exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml


def configuration(**changes: Any) -> dict[str, Any]:
    """A small prediction that needs no measured data; dotted changes are applied."""
    record: dict[str, Any] = {
        "engine": {
            "model": "Qwen/Qwen3-32B-FP8",
            "hardware": "h200_sxm",
            "backend": "vllm",
            "context_length": 4096,
            "workers": {
                "aggregated": {
                    "scheduler": {"max_batched_tokens": 512, "max_sequences": 4},
                    "kv_cache": {
                        "block_size": 16,
                        "capacity": {"type": "fixed", "blocks": 200},
                    },
                    "timing": {"type": "fixed", "prefill_ms": 10.0, "decode_ms": 3.0},
                }
            },
        },
        "traffic": {
            "source": {"type": "synthetic", "input_tokens": 64, "output_tokens": 9},
            "load": {"type": "concurrency", "concurrency": 12},
            "stop": {"requests": 40},
        },
    }
    for path, value in changes.items():
        *blocks, name = path.split(".")
        here = record
        for block in blocks:
            here = here.setdefault(block, {})
        here[name] = value
    return record


@pytest.fixture
def run(tmp_path: Path, capsys, monkeypatch):
    """Write a configuration, run the command beside it; code, stdout, stderr."""
    from aisim_jax.cli import run as command

    monkeypatch.chdir(tmp_path)

    def predict(record: Any, *flags: str) -> tuple[int, str, str]:
        text = record if isinstance(record, str) else yaml.safe_dump(record)
        Path("prediction.yaml").write_text(text)
        code = command(["predict", "-c", "prediction.yaml", *flags])
        told = capsys.readouterr()
        return code, told.out, told.err

    return predict


AGGREGATED = "engine.workers.aggregated"
POISSON = {"type": "poisson", "requests_per_second": 30.0, "seed": 4}


def test_the_report_is_printed_and_written(run) -> None:
    code, out, _ = run(configuration(**{"evaluation.sla": {"ttft_ms": 60.0}}))
    assert code == 0
    report = json.loads(Path("aisimulate-output/prediction.json").read_text())
    # Ten waves of four; a wave is 10 + 8 * 3 ms.
    assert report["duration_ms"] == 340.0
    assert report["mean_ttft_ms"] == pytest.approx(67.8)
    assert report["goodput_completed_requests"] == 8
    assert list(report) == sorted(report)
    assert "Time to First Token (ms)" in out and "67.80" in out
    assert not Path("aisimulate-output/requests.jsonl").exists()


def test_json_on_stdout_is_the_written_report(run) -> None:
    code, out, _ = run(configuration(), "--format", "json", "--output-dir", "one")
    assert code == 0 and out.count("\n") == 1
    assert json.loads(out) == json.loads(Path("one/prediction.json").read_text())


def test_a_folder_with_results_needs_overwrite(run) -> None:
    first = ("--output-dir", "one", "--capture-per-request")
    assert run(configuration(), *first)[0] == 0
    assert len(Path("one/requests.jsonl").read_text().splitlines()) == 40
    code, _, told = run(configuration(), "--output-dir", "one")
    assert code == 2 and "--overwrite" in told
    assert run(configuration(), "--output-dir", "one", "--overwrite")[0] == 0
    assert [one.name for one in Path("one").iterdir()] == ["prediction.json"]


def test_overrides_apply_from_left_to_right(run) -> None:
    flags = ("--set", "traffic.stop.requests=7", "--set", "traffic.stop.requests=5")
    _, out, _ = run(configuration(), *flags, "--format", "json")
    assert json.loads(out)["num_requests"] == 5


def test_several_seeds_give_means_with_intervals(run) -> None:
    record = configuration(**{"traffic.load": POISSON})
    _, out, _ = run(record, "--seeds", "3", "--format", "json", "--capture-per-request")
    report = json.loads(out)
    singles = []
    for number in range(3):
        flags = ("--set", f"traffic.load.seed={4 + number}", "--overwrite")
        singles.append(json.loads(run(record, *flags, "--format", "json")[1]))
    means = [one["mean_ttft_ms"] for one in singles]
    assert report["mean_ttft_ms"] == pytest.approx(sum(means) / 3, rel=1e-12)
    assert report["confidence_half_width"]["mean_ttft_ms"] > 0


def test_seeds_that_change_nothing_are_refused(run) -> None:
    code, _, told = run(configuration(), "--seeds", "3")
    assert code == 2 and "nothing in this prediction is random" in told


def test_prompts_above_the_context_limit_are_counted_beside_the_latencies(run) -> None:
    trace = [(30, 4), (300, 4), (128, 4)]
    Path("trace.jsonl").write_text(
        "".join(
            json.dumps(
                {
                    "timestamp": 10 * k,
                    "input_length": isl,
                    "output_length": osl,
                    "hash_ids": list(range(20 * k, 20 * k + 20)),
                }
            )
            + "\n"
            for k, (isl, osl) in enumerate(trace)
        )
    )
    record = configuration(
        **{
            "engine.context_length": 128,
            "traffic": {
                "source": {"type": "trace", "paths": ["trace.jsonl"], "block_size": 16},
                "load": {"type": "trace_timestamps"},
            },
        }
    )
    code, out, _ = run(record, "--format", "json", "--capture-per-request")
    report = json.loads(out)
    assert code == 0 and report["completed_requests"] == 1
    assert report["rejected_share"] == pytest.approx(2 / 3)
    assert report["rejection_reasons"][0]["reason"] == "context"
    lines = Path("aisimulate-output/requests.jsonl").read_text().splitlines()
    reasons = [json.loads(line)["rejection_reason"] for line in lines]
    assert reasons[0] is None and "context limit of 128 tokens" in reasons[1]


STALLS = {
    "whole_pool": (
        {
            f"{AGGREGATED}.kv_cache.capacity.blocks": 10,
            "traffic.source.input_tokens": 100,
            "traffic.source.output_tokens": 100,
            "traffic.load.concurrency": 2,
            "traffic.stop.requests": 4,
        },
        "prompt and output together need more than the 160 tokens",
    ),
    "budget": (
        {
            f"{AGGREGATED}.scheduler.max_batched_tokens": 128,
            "engine.enable_chunked_prefill": False,
            "traffic.source.input_tokens": 300,
            "traffic.load.concurrency": 2,
            "traffic.stop.requests": 4,
        },
        "chunked prefill is off and the prompt exceeds the 128 tokens",
    ),
}


@pytest.mark.parametrize("case", STALLS)
def test_requests_that_can_never_be_served_say_why(run, case: str) -> None:
    changes, reason = STALLS[case]
    code, _, told = run(configuration(**changes))
    assert code == 1 and reason in told
    assert not Path("aisimulate-output").exists()
    code, _, told = run(configuration(**changes), "--compat")
    assert code == 1
    assert "zero-duration pass with 2 in-flight requests remaining" in told


def test_no_request_in_the_simulated_time_is_its_own_reason(run) -> None:
    Path("trace.jsonl").write_text(
        '{"timestamp": 0, "input_length": 16, "output_length": 99, "hash_ids": [1]}\n'
    )
    traffic = {
        "source": {"type": "trace", "paths": ["trace.jsonl"], "block_size": 16},
        "load": {"type": "trace_timestamps"},
        "stop": {"max_virtual_time_seconds": 0.05},
    }
    code, _, told = run(configuration(traffic=traffic))
    assert code == 1 and "max_virtual_time_seconds" in told


BAD_INPUT = {
    "bad_enum": ({"engine.mode": "agregated"}, "engine.mode"),
    "unknown_field": ({"engine.bakend_x": 1}, "engine.bakend_x"),
    "unknown_section": ({"engin": {}}, "engin"),
    "domain_in_predict": (
        {"traffic.load.concurrency": {"choices": [4, 8]}},
        "traffic.load.concurrency",
    ),
    "zero_tokens": ({"traffic.source.input_tokens": 0}, "input_tokens"),
    "bad_hw": ({"engine.hardware": "h999"}, "h999"),
    "bad_model": ({"engine.model": "nobody/none-1b"}, "nobody/none-1b"),
    "bad_tp": (
        {
            f"{AGGREGATED}.parallelism.tensor": 3,
            f"{AGGREGATED}.timing": {"type": "default"},
        },
        "3",
    ),
    "opt_in_predict": ({"optimization.target": "ttft"}, "optimization"),
    "both_sla_kinds": (
        {"evaluation.sla": {"ttft_ms": 1.0, "e2e_ms": 1.0}},
        "evaluation.sla",
    ),
    "two_stops": ({"traffic.stop.requests_per_load_unit": 2.0}, "traffic"),
    "wrong_load_field": ({"traffic.load.requests_per_second": 2.0}, "traffic.load"),
    "int_as_string": ({"traffic.load.concurrency": "8"}, "traffic.load.concurrency"),
    "no_kv_budget": (
        {
            "engine.model": "meta-llama/Meta-Llama-3.1-70B",
            "engine.hardware": "l40s",
            f"{AGGREGATED}.kv_cache": {},
            f"{AGGREGATED}.timing": {"type": "default"},
        },
        "tp",
    ),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_one_sentence_and_exit_code_2(run, case: str) -> None:
    changes, words = BAD_INPUT[case]
    code, out, told = run(configuration(**changes))
    assert code == 2, told
    assert words in told and told.count("\n") == 1 and out == ""
    assert not Path("aisimulate-output").exists()


BAD_FLAGS = {
    "bad_set_index": (["--set", "engine.workers.0.x=1"], "engine.workers.0.x"),
    "bad_set_cross": (["--set", "engine.model.foo=1"], "engine.model"),
    "bad_set_form": (["--set", "novalue"], "novalue"),
    "set_optimization": (["--set", "optimization.target=ttft"], "optimization"),
    "unknown_stack": (["--stack", "nothere"], "engine"),
    "energy": (["--detail", "energy"], "energy"),
    "unknown_detail": (["--detail", "tiem"], "time"),
    "power": (["--diagnostics", "power"], "power"),
    "online": (["--online"], "virtual time"),
    "operations": (["--detail-top-n", "3"], "aisim estimate"),
}


@pytest.mark.parametrize("case", BAD_FLAGS)
def test_flags_that_cannot_be_honoured_are_refused(run, case: str) -> None:
    flags, words = BAD_FLAGS[case]
    code, _, told = run(configuration(), *flags)
    assert code == 2 and words in told and told.count("\n") == 1


def test_malformed_yaml_and_missing_files_are_refused(run) -> None:
    assert run("engine: [")[0] == 2
    from aisim_jax.cli import run as command

    assert command(["predict", "-c", "nofile.yaml"]) == 2
    assert command(["predict"]) == 2


def test_errors_are_json_when_json_is_asked_for(run) -> None:
    code, out, _ = run(configuration(**{"engine.hardware": "h999"}), "--format", "json")
    answer = json.loads(out)
    assert code == answer["exit_code"] == 2 and "h999" in answer["error"]


def test_details_are_sections_of_the_report(run) -> None:
    code, out, _ = run(configuration(), "--detail", "all", "--format", "json")
    found = json.loads(out)["details"]
    assert code == 0 and list(found) == ["memory", "source", "summary", "time"]
    assert found["memory"]["aggregated"]["pool_tokens"] == 3200
    assert found["time"]["passes_aggregated"]["prefill"]["passes"] == 10
