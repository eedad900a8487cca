"""What a sweep looks like to a person, and as files."""

import csv
import io
import json
import re

import pytest
from sweep_samples import sweep_report


def printed(report, width=100):
    from rich.console import Console

    from aisim_jax.report import sweep_text

    stream = io.StringIO()
    console = Console(file=stream, width=width, no_color=True)
    console.print(sweep_text(report, width))
    return stream.getvalue()


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_tables_fit_the_width_and_cut_no_number(width):
    text = printed(sweep_report(), width)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    assert "…" not in text


def test_answer_names_layout_engine_and_what_it_delivers():
    text = printed(sweep_report())
    assert "Run 8 × aggregated tp1 with vllm 0.24.0 on 8 h200_sxm" in text
    assert "1,471 tokens/s/GPU" in text
    assert "TTFT 555 ms, TPOT 42.9 ms" in " ".join(text.split())


def test_lost_points_are_counted_by_reason():
    text = " ".join(printed(sweep_report()).split())
    assert "10,000 points evaluated: 3,000 meet the targets" in text
    assert "2,400 do not fit in memory" in text


def test_nothing_feasible_is_said_and_draws_no_plot():
    from dataclasses import replace

    report = sweep_report()
    empty = tuple(
        replace(one, best=(), pareto=(), failure="weights need 12.0 GiB more")
        for one in report.experiments
    )
    text = printed(sweep_report(experiments=empty, chosen=None))
    assert "Nothing in the searched space meets the request." in text
    assert "weights need 12.0 GiB more" in text
    assert "Pareto" not in text


def test_json_has_every_deployment_and_no_bare_nan():
    from dataclasses import replace

    from aisim_jax.report import sweep_json

    report = sweep_report()
    report = replace(report, chosen=replace(report.chosen, tpot_ms=float("nan")))
    record = json.loads(sweep_json(report), parse_constant=pytest.fail)
    assert record["chosen"]["tpot_ms"] is None
    assert [len(one["best"]) for one in record["experiments"]] == [
        len(one.best) for one in report.experiments
    ]
    assert record["chosen"]["launch"][0]["text"].startswith("vllm serve")


def test_csv_carries_the_workers_by_role():
    from aisim_jax.report import best_rows, deployments_csv

    report = sweep_report()
    lines = list(csv.DictReader(io.StringIO(deployments_csv(best_rows(report)))))
    aggregated = [line for line in lines if line["serving_mode"] == "agg"]
    split = [line for line in lines if line["serving_mode"] == "disagg"]
    assert aggregated[0]["agg_batch"] == "64"
    assert split[0]["prefill_workers"] == "2"
    assert split[0]["decode_batch"] == "256"
    assert split[0]["agg_batch"] == ""


def test_output_folder_is_written_without_leftovers(tmp_path):
    from aisim_jax.report import write_sweep

    paths = write_sweep(sweep_report(), tmp_path / "new" / "folder")
    names = sorted(path.name for path in (tmp_path / "new" / "folder").iterdir())
    assert names == ["candidates.csv", "pareto.csv", "pareto.html", "result.json"]
    assert sorted(path.name for path in paths) == names


def test_page_is_self_contained():
    from aisim_jax.report import pareto_page

    page = pareto_page(sweep_report())
    assert "vllm serve Qwen/Qwen3-32B-FP8" in page
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", page)


def test_picture_is_a_png(tmp_path):
    from aisim_jax.report import write_plot

    path = tmp_path / "frontier.png"
    write_plot(sweep_report(), path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_other_picture_names_are_refused(tmp_path):
    from aisim_jax import AisimError
    from aisim_jax.report import write_plot

    with pytest.raises(AisimError, match=r"must end in \.html or \.png"):
        write_plot(sweep_report(), tmp_path / "frontier.pdf")


def test_unwritable_place_is_one_sentence(tmp_path):
    from aisim_jax import AisimError
    from aisim_jax.report import write_file

    (tmp_path / "file").write_text("")
    with pytest.raises(AisimError, match="Cannot write"):
        write_file(tmp_path / "file" / "result.json", "{}")
