"""`aisim recommend` from a file to a ranking and files."""

import contextlib
import csv
import io
import json

import pytest
import yaml


SHAPE = {"pipeline": 1, "attention_data": 1, "moe_tensor": 1, "moe_expert": 1}
QUESTION = {
    "traffic": {
        "source": {"type": "synthetic", "input_tokens": 1000, "output_tokens": 20},
        "load": {"type": "concurrency", "concurrency": {"choices": [2, 8]}},
        "stop": {"requests_per_load_unit": 4},
    },
    "engine": {
        "mode": "aggregated",
        "model": "Qwen/Qwen3-32B-FP8",
        "hardware": "h200_sxm",
        "backend": "vllm",
        "context_length": 4096,
        "workers": {
            "aggregated": {
                "timing": {"type": "fixed", "prefill_ms": 20.0, "decode_ms": 5.0},
                "parallelism": {
                    "preset": [
                        {"replicas": 1, "tensor": 1, **SHAPE},
                        {"replicas": 1, "tensor": 2, **SHAPE},
                        {"replicas": 1, "tensor": 16, **SHAPE},
                    ]
                },
                "scheduler": {
                    "max_batched_tokens": {"choices": [2048, 8192]},
                    "max_sequences": {"choices": [4, 256]},
                },
            }
        },
    },
    "evaluation": {"sla": {"ttft_ms": 100.0, "itl_ms": 10.0}},
    "optimization": {
        "target": "throughput_per_gpu",
        "constraints": {"max_candidate_gpus": 4},
    },
}


@pytest.fixture
def question(tmp_path):
    path = tmp_path / "recommendation.yaml"
    path.write_text(yaml.safe_dump(QUESTION))
    return path


def recommend(question, *more, folder="out"):
    """Exit code, stdout and stderr of the command."""
    from aisim_jax.cli import run

    out, err = io.StringIO(), io.StringIO()
    words = ["recommend", "-c", str(question), "--output-dir"]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run([*words, str(question.parent / folder), *more])
    return code, out.getvalue(), err.getvalue()


def result(question, folder="out"):
    return json.loads((question.parent / folder / "recommendation.json").read_text())


def test_search_writes_ranking_table_and_files(question):
    code, text, _ = recommend(question)
    assert code == 0
    for claim in (
        "Best by throughput_per_gpu",
        "1×tp1",
        "TTFT ms",
        "TPOT ms",
        "0001.yaml",
    ):
        assert claim in text
    found = result(question)
    assert found["schema_version"] == "1.1" and found["complete"]
    assert found["counts"]["feasible"] == len(found["candidates"])
    assert found["views"]["top_n"][0] == found["candidates"][0]["candidate_id"]
    scores = [one["score"] for one in found["candidates"]]
    assert scores == sorted(scores, reverse=True)
    with open(question.parent / "out" / "recommendation.csv") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["candidate_id"] for row in rows] == [
        one["candidate_id"] for one in found["candidates"]
    ]
    assert not list((question.parent / "out").glob(".*"))


def test_every_candidate_is_accounted_for(question):
    recommend(question)
    found = result(question)
    seen = found["coverage"]
    # 3 shapes x 4 limits x 2 loads; the widest shape exceeds the budget.
    assert seen["legal"] == 24
    assert seen["dropped"] == 8
    assert seen["stood_for"] == 16 == sum(c["stands_for"] for c in found["candidates"])
    assert seen["replayed"] == len(found["candidates"]) < 16
    (lost,) = found["dropped"]
    assert (lost["reason_category"], lost["candidates"]) == ("gpu_budget", 8)


def test_recommended_files_give_the_same_numbers_to_predict(question):
    from aisim_jax.config import dump_prediction, load_prediction
    from aisim_jax.replay import predict

    recommend(question)
    found = result(question)
    files = sorted((question.parent / "out" / "recommendations").iterdir())
    best = load_prediction(files[0])
    assert dump_prediction(best) == files[0].read_text()
    report = predict(best).report
    for name, value in found["candidates"][0]["metrics"].items():
        if isinstance(value, float | int) and name in report:
            assert report[name] == value, name


def test_same_answers_under_other_limits_are_one_file(question):
    recommend(question)
    files = list((question.parent / "out" / "recommendations").iterdir())
    texts = [path.read_text() for path in files]
    assert len(set(texts)) == len(texts)
    found = result(question)["candidates"]
    keys = {
        (json.dumps(one["metrics"], sort_keys=True), one["config"]["tp"])
        for one in found
    }
    assert len(files) == len(keys)


def test_json_lists_ranks_and_paths(question):
    code, text, _ = recommend(question, "--format", "json")
    assert code == 0
    ranks = json.loads(text)
    assert [one["rank"] for one in ranks] == list(range(1, len(ranks) + 1))
    assert ranks[0]["config_path"].endswith("recommendations/0001.yaml")


def test_a_full_folder_needs_overwrite_and_keeps_other_files(question):
    recommend(question)
    out = question.parent / "out"
    (out / "notes.txt").write_text("mine")
    code, _, error = recommend(question)
    assert code == 2 and "--overwrite" in error
    (out / "recommendations" / "0099.yaml").write_text("old")
    assert recommend(question, "--overwrite")[0] == 0
    assert (out / "notes.txt").read_text() == "mine"
    assert not (out / "recommendations" / "0099.yaml").exists()


def test_dry_run_counts_and_writes_nothing(question):
    code, text, _ = recommend(question, "--dry-run", "--format", "json")
    counts = json.loads(text)
    assert code == 0
    assert counts["candidates"] == 24 and counts["dropped"] == 8
    assert counts["replays"] == counts["distinct"] < 16
    assert not (question.parent / "out").exists()


def test_nothing_feasible_exits_1_and_names_the_closest(question):
    code, text, error = recommend(
        question,
        "--set",
        "optimization.strict_sla=true",
        "--set",
        "evaluation.sla={ttft_ms: 1, itl_ms: 1}",
    )
    assert code == 1
    assert "No candidate is feasible" in text and "The closest is" in text
    assert "no feasible candidate" in error
    found = result(question)
    assert found["counts"]["feasible"] == 0
    assert found["closest"] == found["candidates"][0]["candidate_id"]
    assert all("mean TTFT" in one["reason"] for one in found["candidates"])


def test_out_of_memory_names_memory_not_latency(question):
    code, text, _ = recommend(
        question,
        "--set",
        "engine.model=meta-llama/Meta-Llama-3.1-70B",
        "--set",
        "engine.workers.aggregated.kv_cache={capacity: {memory_fraction: 0.3}}",
        "--set",
        "optimization.strict_sla=true",
        "--set",
        "evaluation.sla={ttft_ms: 1, itl_ms: 1}",
    )
    assert code == 1
    categories = {one["reason_category"] for one in result(question)["dropped"]}
    assert categories == {"kv_capacity", "gpu_budget"}
    assert "KV" in text


def test_budget_below_the_space_is_kept_and_said(question):
    code, text, _ = recommend(question, "--set", "optimizer={max_trials: 3}")
    found = result(question)
    assert code == 0
    assert found["coverage"]["replayed"] == 3
    assert found["coverage"]["left"] + found["coverage"]["screened_out"] > 0
    assert "max_trials = 3" in " ".join(text.split())


def test_interrupted_search_keeps_what_it_has_and_goes_on(question, monkeypatch):
    from aisim_jax.recommend.search import _run

    done = []
    replay = _run.replay_batch

    def stop_after_one(candidates, goal, **more):
        if done:
            raise KeyboardInterrupt
        done.append(candidates)
        yield from replay(candidates, goal, **more)

    monkeypatch.setattr(_run, "BATCH", 2)
    monkeypatch.setattr(_run, "replay_batch", stop_after_one)
    code, _, error = recommend(question)
    assert code == 130 and "--resume" in error
    partial = result(question)
    assert not partial["complete"] and len(partial["candidates"]) == 2
    assert recommend(question)[0] == 2

    seen = []

    def count(candidates, goal, **more):
        seen.extend(candidates)
        yield from replay(candidates, goal, **more)

    monkeypatch.setattr(_run, "replay_batch", count)
    assert recommend(question, "--resume")[0] == 0
    whole = result(question)
    assert whole["complete"]
    assert len(seen) == len(whole["candidates"]) - 2
    assert recommend(question, folder="fresh")[0] == 0
    assert whole["candidates"] == result(question, "fresh")["candidates"]


def test_resume_needs_the_same_question(question):
    from aisim_jax.recommend.search import JOURNAL

    out = question.parent / "out"
    assert recommend(question, "--resume")[0] == 2
    out.mkdir(exist_ok=True)
    (out / JOURNAL).write_text('{"question":"sha256:other"}\n')
    code, _, error = recommend(question, "--resume")
    assert code == 2 and "another configuration" in error


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ("optimization.target=goodputt", "optimization.target"),
        ("engine.hardware=h999", "h999"),
        ("engine.model=no/such-model", "no/such-model"),
        ("traffic.load.concurrency={choices: [4, 4]}", "traffic.load.concurrency"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(question, change, place):
    code, _, error = recommend(question, "--set", change)
    assert code == 2
    assert place in error and error.count("\n") == 1
    assert not (question.parent / "out").exists()
