"""Answers and refusals of the commands that need no sweep."""

import json
import shutil

import pytest


H200 = ["--system", "h200_sxm", "--backend", "vllm"]
QWEN = ["--model", "Qwen/Qwen3-32B-FP8"]


def aisim(capsys, *words):
    from aisim_jax.cli import run

    code = run(words)
    out, message = capsys.readouterr()
    return code, out, message


def test_profiles_list_names_every_embedded_archive(capsys):
    code, out, _ = aisim(capsys, "profiles", "list", "--format", "json")
    found = {(one["system"], one["backend"]) for one in json.loads(out)}
    systems = ("h100_sxm", "h200_sxm", "b200_sxm")
    engines = ("vllm", "sglang", "trtllm")
    assert code == 0
    assert found == {(system, engine) for system in systems for engine in engines}
    code, table, _ = aisim(capsys, "profiles", "list")
    assert code == 0 and "h200_sxm" in table
    code, models, _ = aisim(capsys, "profiles", "models", "--format", "json")
    priced = sum(one["priced"] for one in json.loads(models))
    assert f"{priced} embedded models can be priced" in " ".join(table.split())
    code, rows, _ = aisim(capsys, "profiles", "list", "--format", "csv")
    assert code == 0 and len(rows.splitlines()) == 10


def test_profiles_show_and_models(capsys):
    code, out, _ = aisim(capsys, "profiles", "show", "h200_sxm")
    assert code == 0 and "141.0 GiB" in out
    code, out, _ = aisim(capsys, "profiles", "models", "--format", "json")
    priced = [one["name"] for one in json.loads(out) if one["priced"]]
    assert code == 0 and len(priced) >= 40


def test_capacity_shows_breakdown_and_what_fits(capsys):
    code, out, _ = aisim(capsys, "capacity", *QWEN, *H200)
    assert code == 0
    for word in ("weights", "KV cache", "Longest context", "Requests at once"):
        assert word in out


def test_capacity_json_is_the_library_record(capsys):
    from aisim_jax.memory import capacity_report

    code, out, _ = aisim(capsys, "capacity", *QWEN, *H200, "--format", "json")
    record = json.loads(out)
    report = capacity_report(QWEN[1], "h200_sxm", "vllm", isl=4000, osl=1000)
    assert code == 0
    assert record["tokens"] == report.tokens and record["layout"]


def test_requests_beyond_the_model_s_context_are_not_counted(capsys):
    words = [*QWEN, *H200, "--isl", "40000", "--osl", "961"]
    code, out, _ = aisim(capsys, "capacity", *words)
    assert code == 0
    assert "Requests at once: none" in out and "40,960 by the model" in out


def test_context_that_does_not_fit_is_refused_with_need_and_remedy(capsys):
    words = ["--model", "meta-llama/Llama-3.1-70B", "--system", "h100_sxm"]
    words += ["--backend", "sglang", "--tp", "2", "--context-length", "131072"]
    code, out, _ = aisim(capsys, "capacity", *words)
    text = " ".join(out.split())
    assert code == 1
    assert "a 131072-token context needs 20.0 GiB" in text
    assert "use tp_size>=4 or context_length<=" in text


STEP = ["--prefill", "1x2048", "--decode", "16x4096"]


def test_estimate_is_the_sum_of_its_operations_and_the_library_answer(capsys):
    from aisim_jax import best_available

    code, out, _ = aisim(capsys, "estimate", *QWEN, *H200, *STEP, "--format", "json")
    record = json.loads(out)
    model = best_available(
        {
            "model": QWEN[1],
            "system": "h200_sxm",
            "backend": "vllm",
            "worker_type": "aggregated",
        }
    )
    expected_ms = model.estimate_forward_pass_time_ms(
        {
            "num_prefill_requests": 1,
            "sum_prefill_tokens": 2048,
            "num_decode_requests": 16,
            "sum_decode_kv_tokens": 16 * 4096,
        }
    )
    assert code == 0
    assert record["latency_ms"] == pytest.approx(expected_ms, rel=1e-9)
    assert sum(one["share"] for one in record["operations"]) == pytest.approx(1.0)


def test_estimate_table_shows_share_and_origin(capsys):
    words = ["--model", "Qwen/Qwen3-30B-A3B", *H200, "--tp", "4", "--decode", "64x4096"]
    code, out, _ = aisim(capsys, "estimate", *words)
    assert code == 0
    for word in ("generation_moe", "tp4 ep4", "Of the time", "Data: h200_sxm, vllm"):
        assert word in out


def broken_root(folder):
    from aisim_jax.systems import load_tables

    path = load_tables("h200_sxm", "vllm").path
    target = folder / "tables" / "h200_sxm" / "vllm" / path.name
    target.parent.mkdir(parents=True)
    target.write_bytes(path.read_bytes()[:5000])
    profiles = path.parents[3]
    for name in ("systems.json", "query_versions.json"):
        shutil.copy(profiles / name, folder / name)
    return str(folder)


@pytest.mark.parametrize(
    ("words", "claim"),
    [
        (["capacity", "--model", "acme/none", *H200], "acme/none"),
        (["capacity", *QWEN, "--system", "h999", "--backend", "vllm"], "h999"),
        (["capacity", *QWEN, *H200, "--backend-version", "0.0.1"], "0.0.1"),
        (["capacity", *QWEN, *H200, "--tp", "3"], "tp=3"),
        (["capacity", *QWEN, *H200, "--kv-quant", "fp7"], "fp7"),
        (["capacity", *QWEN, *H200, "--isl", "-5"], "--isl"),
        (["capacity", "--model", "./none/config.json", *H200], "none/config.json"),
        (["capacity", *QWEN, *H200, "--systems-path", "./nowhere"], "nowhere"),
        (["profiles", "show", "h999"], "h999"),
        (["estimate", *QWEN, *H200], "nothing to price"),
        (["estimate", *QWEN, *H200, "--decode", "16"], "REQUESTSxTOKENS"),
        (["estimate", *QWEN, *H200, "--decode", "-1x4"], "REQUESTSxTOKENS"),
        (["estimate", *QWEN, *H200, *STEP, "--tp", "3"], "tp=3"),
        (["estimate", *QWEN, *H200, *STEP, "--gemm-quant", "fp7"], "fp7"),
        (["estimate", "--model", "acme/none", *H200, *STEP], "acme/none"),
        (["estimate", *QWEN, *H200, "--decode", "1x9", "--prefix", "9"], "--prefix 9"),
        (["estimate", *QWEN, *H200, *STEP, "--moe-quant", "fp8"], "no experts"),
        (["capacity", *QWEN, *H200, "--moe-quant", "fp8"], "no experts"),
        (["capacity", *QWEN, *H200, "--tp", "2", "--moe-ep", "2"], "no experts"),
        (["estimate", *QWEN, *H200, *STEP, "--tp", "2", "--moe-tp", "2"], "no experts"),
        (["estimate", *QWEN, *H200, "--decode", "1x40961"], "context of 40960"),
        (["estimate", *QWEN, *H200, *STEP, "--prefix", "40000"], "context of 40960"),
        (["capacity", *QWEN, *H200, "--context-length", "40961"], "context of 40960"),
        (["profiles", "import", "./none.whl", *H200], "none.whl"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(capsys, words, claim):
    code, out, message = aisim(capsys, *words)
    assert code == 2 and not out
    assert claim in message and len(message.strip().splitlines()) == 1


def test_corrupt_archive_is_one_sentence_and_exit_2(capsys, tmp_path):
    root = broken_root(tmp_path)
    code, out, message = aisim(capsys, "profiles", "list", "--systems-path", root)
    assert code == 2 and not out
    assert "0.24.0.npz" in message and len(message.strip().splitlines()) == 1


def test_corrupt_archive_does_not_price(capsys, tmp_path):
    root = broken_root(tmp_path)
    words = [*QWEN, *H200, *STEP, "--systems-path", root]
    code, out, message = aisim(capsys, "estimate", *words)
    assert code == 2 and not out
    assert "0.24.0.npz" in message and len(message.strip().splitlines()) == 1


def test_foreign_wheel_is_one_sentence_and_exit_2(capsys, tmp_path):
    wheel = tmp_path / "other-1.0-py3-none-any.whl"
    wheel.write_bytes(b"not a zip file")
    code, out, message = aisim(capsys, "profiles", "import", str(wheel), *H200)
    assert code == 2 and not out
    assert wheel.name in message and len(message.strip().splitlines()) == 1
