"""`aisim sweep` from flags to tables and files."""

import csv
import io
import json

import pytest


QUESTION = ["sweep", "--model", "Qwen/Qwen3-32B-FP8", "--system", "h200_sxm"]
QUESTION += ["--backend", "vllm", "--gpus", "2", "--isl", "4000", "--osl", "500"]


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """One sweep per output form; the second and third find everything compiled."""
    import contextlib

    from aisim_jax.cli import run

    folder = tmp_path_factory.mktemp("sweep")
    found = {}
    for form, more in {
        "table": ["--output-dir", str(folder / "out")],
        "json": ["--plot", str(folder / "frontier.png")],
        "csv": [],
    }.items():
        stream = io.StringIO()
        with contextlib.redirect_stdout(stream):
            code = run([*QUESTION, "--format", form, *more])
        assert code == 0
        found[form] = stream.getvalue()
    return folder, found


def test_table_answers_the_question(answers):
    _, found = answers
    text = " ".join(found["table"].split())
    for claim in (
        "4000 tokens in, 500 out · TTFT ≤ 2000 ms, TPOT ≤ 30 ms · 2 GPUs",
        "with vllm 0.24.0 on 2 h200_sxm",
        "Best aggregated deployments",
        "Best disaggregated deployments",
        "Pareto frontier",
        "points evaluated",
        "vllm serve Qwen/Qwen3-32B-FP8",
        "measured tables",
    ):
        assert claim in text


def test_json_and_csv_agree_on_the_best(answers):
    _, found = answers
    record = json.loads(found["json"])
    lines = list(csv.DictReader(io.StringIO(found["csv"])))
    model = record["question"]["model"]
    assert record["question"]["systems"] == ["h200_sxm"]
    assert record["question"]["backends"] == ["vllm"]
    best = [row for rows in record["best"][model].values() for row in rows]
    assert [float(line["tpot_ms"]) for line in lines] == [
        row["tpot_ms"] for row in best
    ]
    assert record["chosen"][model] in best
    assert record["launch"][0]["text"].startswith("vllm serve")
    assert sum(record["counts"].values()) > 0


def test_files_are_complete_and_nothing_else_is_left(answers):
    folder, _ = answers
    out = folder / "out"
    names = sorted(path.name for path in out.iterdir())
    assert names == ["best.csv", "pareto.csv", "pareto.html", "result.json"]
    json.loads((out / "result.json").read_text())
    assert (folder / "frontier.png").read_bytes().startswith(b"\x89PNG")


def test_nothing_feasible_is_exit_1_with_the_reason(capsys):
    from aisim_jax.cli import run

    code = run(
        [*QUESTION, "--model", "meta-llama/Llama-3.1-405B", "--serving-mode", "agg"]
    )
    out, message = capsys.readouterr()
    assert code == 1 and not out
    assert "fits in memory" in message or "GiB" in message
    assert len(message.strip().splitlines()) == 1


@pytest.mark.parametrize("flag", ["--plot", "--output-dir"])
def test_a_place_that_cannot_be_written_is_said_before_anything_is_priced(
    capsys, tmp_path, flag
):
    from aisim_jax.cli import run

    (tmp_path / "folder.html").mkdir()
    (tmp_path / "file").touch()
    place = {"--plot": "folder.html", "--output-dir": "file/out"}[flag]
    code = run([*QUESTION, flag, str(tmp_path / place)])
    out, message = capsys.readouterr()
    assert code == 2 and not out
    assert "Cannot write" in message and len(message.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "claim"),
    [
        (["--model", "acme/none"], "acme/none"),
        (["--system", "h999"], "h999"),
        (["--backend-version", "0.0.1"], "0.0.1"),
        (["--prefix", "4000"], "prefix"),
        (["--target-request-rate", "0"], "load target 0"),
        (["--tpot", "0"], "tpot_ms"),
        (["--request-latency", "9000", "--ttft", "100"], "replaces --ttft"),
        (["--request-latency", "9000", "--tpot", "10"], "replaces --ttft"),
        (["--systems-path", "./nowhere"], "nowhere"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(capsys, words, claim):
    from aisim_jax.cli import run

    code = run([*QUESTION, *words])
    out, message = capsys.readouterr()
    assert code == 2 and not out
    assert claim in message and len(message.strip().splitlines()) == 1


def test_cache_precision_reaches_the_price_and_the_launch_line(capsys):
    from aisim_jax.cli import run

    assert run([*QUESTION, "--kv-quant", "bfloat16", "--format", "json"]) == 0
    record = json.loads(capsys.readouterr().out)
    best = [row for rows in record["best"].values() for row in rows["agg"]]
    assert {row["kv_precision"] for row in best} == {"bfloat16"}
    assert "--kv-cache-dtype" not in json.dumps(record)
