"""What a sweep looks like to a person, and as files."""

import io
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
    assert "10,000 points evaluated." in text
    assert "9,000 aggregated: 3,000 meet every limit" in text
    assert "2,400 do not fit in memory" in text
    workers = "1,000 prefill and decode workers: 40 meet the limits of their phase"
    assert workers in text


def test_nothing_feasible_is_said_and_draws_no_plot():
    nothing = {"agg": (), "disagg": ()}
    text = printed(
        sweep_report(
            best=nothing,
            pareto=nothing,
            chosen=None,
            failures={"agg": "weights need 12.0 GiB more"},
        )
    )
    assert "Nothing in the searched space meets the request." in text
    assert "No answer from agg: weights need 12.0 GiB more" in text
    assert "Pareto" not in text


def test_miss_and_partial_load_are_said():
    from dataclasses import replace

    chosen = sweep_report().chosen
    assert chosen is not None
    text = printed(
        sweep_report(
            chosen=replace(chosen, meets_targets=False, load_served_percent=62.5)
        )
    )
    words = " ".join(text.split())
    assert "It misses the targets; it is the closest." in words
    assert "It serves 62.5 % of the load." in words


def test_engines_and_systems_are_shown_where_they_differ():
    from dataclasses import replace

    best = dict(sweep_report().best)
    first, second, *rest = best["agg"]
    worker = replace(second.workers[0], system="b200_sxm")
    second = replace(second, backend="sglang", version="0.5", workers=(worker,))
    text = printed(sweep_report(best={**best, "agg": (first, second, *rest)}), 140)
    assert "sglang 0.5" in text and "b200_sxm" in text


def test_request_latency_target_makes_it_the_axis():
    report = sweep_report()
    question = {**report.question, "request_latency_ms": 9000.0}
    text = printed(sweep_report(question=question))
    assert "request latency ≤ 9000 ms" in text
    assert "→ request latency, ms" in text


def test_page_is_self_contained():
    from aisim_jax.report import pareto_page

    page = pareto_page(sweep_report())
    assert "vllm serve Qwen/Qwen3-32B-FP8" in page
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", page)


def test_the_same_sweep_gives_the_same_page_and_picture():
    from aisim_jax.report import pareto_page, pareto_picture

    assert pareto_page(sweep_report()) == pareto_page(sweep_report())
    assert pareto_picture(sweep_report()) == pareto_picture(sweep_report())


def test_picture_is_a_png(tmp_path):
    from aisim_jax.report import write_plot

    path = tmp_path / "frontier.png"
    write_plot(sweep_report(), path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert [one.name for one in tmp_path.iterdir()] == ["frontier.png"]


def test_other_picture_names_are_refused(tmp_path):
    from aisim_jax import AisimError
    from aisim_jax.report import write_plot

    with pytest.raises(AisimError, match=r"must end in \.html or \.png"):
        write_plot(sweep_report(), tmp_path / "frontier.pdf")


def test_unwritable_place_is_one_sentence(tmp_path):
    from aisim_jax import AisimError
    from aisim_jax._atomic import write_file

    (tmp_path / "file").write_text("")
    with pytest.raises(AisimError, match="Cannot write"):
        write_file(tmp_path / "file" / "result.json", "{}")
