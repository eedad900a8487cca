"""Tables of lengths and instants as their makers publish them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from goldens import FULL

from aisim_jax._errors import InvalidInputError
from aisim_jax.traffic import (
    poisson_ms,
    read_trace,
    with_arrivals,
    workload_statistics,
)


TRACES = FULL / "traces"
needs_slices = pytest.mark.skipif(not TRACES.exists(), reason="needs the trace slices")


def written(folder: Path, text: str, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def test_calendar_times_keep_100_ns_across_crlf_and_a_missing_last_line_end(tmp_path):
    path = written(
        tmp_path,
        "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
        "2023-11-16 18:17:03.9799600,4808,10\r\n"
        "2023-11-16 18:17:04.0319601,3180,8\r\n"
        "2024-02-29 00:00:00.0000001,7,1",
    )
    workload = read_trace(path)
    days_ms = ((14 + 31 + 31 + 29) * 24 - 18) * 3_600_000
    last = days_ms - (17 * 60_000 + 3_979) - 0.96 + 0.0001
    assert workload.arrival_ms[:2].tolist() == [0.0, 52.0001]
    assert workload.arrival_ms[2] == pytest.approx(last, abs=1e-6)
    assert workload.isl_tokens.tolist() == [4808, 3180, 7]
    assert workload.session_names == ("request_2", "request_3", "request_4")
    assert not workload.contents.shares()


def test_calendar_times_may_have_a_zone(tmp_path):
    path = written(
        tmp_path,
        "TIMESTAMP,ContextTokens,GeneratedTokens,NumImages\n"
        "2024-05-10 00:00:00.009930+00:00,5,1,0\n"
        "2024-05-10 02:00:00.009930+02:00,5,1,2\n",
    )
    assert read_trace(path).arrival_ms.tolist() == [0.0, 0.0]


def test_a_failed_call_is_left_out_with_a_note_or_kept(tmp_path):
    path = written(
        tmp_path,
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,472,18,490,Conversation log\n"
        "45,ChatGPT,1087,0,1087,Conversation log\n"
        "118,GPT-4,417,276,693,API log\n",
    )
    workload = read_trace(path)
    assert workload.arrival_ms.tolist() == [0.0, 113_000.0]
    assert workload.osl_tokens.tolist() == [18, 276]
    assert "1 failed calls" in workload.notes[0]
    assert read_trace(path, keep_failed=True).osl_tokens.tolist() == [18, 0, 276]


def test_an_empty_session_id_is_a_request_of_its_own(tmp_path):
    path = written(
        tmp_path,
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,"
        "Total tokens,Log Type\n"
        "5,c7,2.5,ChatGPT,10,4,14,Conversation log\n"
        "6,,1.0,GPT-4,3,2,5,API log\n"
        "25,c7,9,ChatGPT,30,4,34,Conversation log\n"
        "26,c7,1,ChatGPT,40,4,44,Conversation log\n"
        "27,,1.0,GPT-4,3,2,5,API log\n",
    )
    workload = read_trace(path)
    assert workload.session.tolist() == [0, 1, 0, 0, 2]
    assert workload.turn.tolist() == [0, 0, 1, 2, 0]
    # 20 s after a turn that took 2.5 s; the next came before the answer had ended.
    assert workload.delay_ms.tolist() == [0, 0, 17_500, 0, 0]


def test_seconds_become_milliseconds_and_the_sum_is_checked(tmp_path):
    head = "arrived_at,num_prefill_tokens,num_decode_tokens,num_total_tokens\n"
    path = written(tmp_path, head + "629.5,1212,406,1618\n629.75,1070,415,1485\n")
    assert read_trace(path).arrival_ms.tolist() == [0.0, 250.0]
    wrong = written(tmp_path, head + "629.5,1212,406,1617\n")
    with pytest.raises(InvalidInputError, match="line 2: num_total_tokens = 1617"):
        read_trace(wrong)


def test_a_table_without_times_needs_another_source_of_arrivals(tmp_path):
    path = written(
        tmp_path,
        "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n"
        "3772,54,3826,69.85\n2015,156,2171,12.9\n",
    )
    with pytest.raises(InvalidInputError, match="cannot be replayed by timestamps"):
        read_trace(path)
    workload = read_trace(path, max_in_flight=8)
    assert workload.isl_tokens.tolist() == [3772, 2015]
    opened = with_arrivals(workload, poisson_ms(2, 10.0))
    assert opened.max_in_flight is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", 'isl_tokens,"osl_tokens",timestamp\n5,2,10\n\n"6",3,30\n'),
        ("a.csv", "arrival_s,prompt_tokens,completion_tokens\n0.01,5,2\n0.03,6,3\n"),
        (
            "a.jsonl",
            '{"timestamp": 10, "input_tokens": 5, "output_tokens": 2}\n'
            '{"timestamp": 30.0, "input_tokens": 6, "output_tokens": 3}\n',
        ),
    ],
)
def test_plain_tables_are_recognised_by_their_columns(name, text, tmp_path):
    workload = read_trace(written(tmp_path, text, name))
    assert workload.arrival_ms.tolist() == [0.0, 20.0]
    assert workload.isl_tokens.tolist() == [5, 6]
    assert workload.osl_tokens.tolist() == [2, 3]


def test_plain_tables_can_have_sessions(tmp_path):
    path = written(
        tmp_path,
        "timestamp,isl,osl,session_id,delay_ms\n0,5,2,a,\n,9,2,a,40\n7,5,2,,\n",
    )
    workload = read_trace(path)
    assert workload.turn.tolist() == [0, 1, 0]
    assert workload.delay_ms.tolist() == [0, 40, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "timestamp,isl,osl\n0,5.0,1\n",
            "line 2: isl is '5.0', which is no whole number",
        ),
        ("timestamp,isl,osl\n0,0,1\n", "line 2: isl = 0 is outside 1"),
        ("timestamp,isl,osl\n0,5,-1\n", "line 2: osl is '-1'"),
        ("timestamp,isl,osl\n0,5,1\nsoon,5,1\n", "line 3: timestamp is 'soon'"),
        ("timestamp,isl,osl\n0,5\n", "line 2: 2 cells under 3 columns"),
        ("timestamp,isl,osl\n0,5,1\n,5,1\n", "line 3: the timestamp is missing"),
        ("timestamp,isl\n0,5\n", "the format is not evident"),
        (
            "TIMESTAMP,ContextTokens,GeneratedTokens\n16/11/2023 18:17,5,1\n",
            "line 2: TIMESTAMP is '16/11/2023 18:17'; write YYYY",
        ),
    ],
)
def test_a_bad_table_says_where_and_what(text, message, tmp_path):
    with pytest.raises(InvalidInputError, match=message):
        read_trace(written(tmp_path, text))


def test_a_format_that_does_not_match_says_which_column_is_missing(tmp_path):
    path = written(tmp_path, "timestamp,isl,osl\n0,5,1\n")
    with pytest.raises(InvalidInputError, match="no column ContextTokens"):
        read_trace(path, "azure")


# ---- statistics of windows ----------------------------------------------------------

RATES = (
    "0,0,0,,0,0\n600,0.5,2.0,Gamma,0.25,77\n1200,1.0,1.0,Weibull,1.0,5\n"
    "1800,0.1,1.0,Gamma,1,1\n"
)
LENGTHS = {
    "0": {"input_tokens": "{}", "output_tokens": "{}"},
    "600": {"input_tokens": "{7: 0.25, 9: 0.75}", "output_tokens": "{3: 1}"},
    "1800": {"input_tokens": "{}", "output_tokens": "{}"},
}


def drawn_from(folder: Path, rates: str = RATES, seed: int = 42):
    first = written(folder, rates, "rates.csv")
    second = written(folder, json.dumps(LENGTHS), "lengths.json")
    return read_trace([first, second], seed=seed)


def test_windows_keep_their_rate_whatever_their_scale_says(tmp_path):
    workload = drawn_from(tmp_path)
    assert workload.size == 300 + 600
    # The first window ends exactly at its end; arrivals start at 0.
    start = 1200_000.0 - workload.arrival_ms[299]
    assert 0 < start - 600_000.0 < 600_000.0
    gaps = np.diff(workload.arrival_ms[:300])
    assert gaps.std() / gaps.mean() == pytest.approx(2.0, rel=0.25)
    assert np.unique(workload.isl_tokens).tolist() == [7, 9]
    assert (workload.isl_tokens == 9).mean() == pytest.approx(0.75, abs=0.05)
    assert (workload.osl_tokens == 3).all()
    assert "seed 42" in workload.notes[0]
    assert "60 requests in windows without lengths" in workload.notes[1]


def test_drawn_requests_follow_the_seed(tmp_path):
    one, same, other = (drawn_from(tmp_path, seed=s).arrival_ms for s in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize(
    ("rates", "message"),
    [
        ("0,0.5,1,Gamma,1,1\n600,0,0,,0,0\n", "no request"),
        ("600,0.5,1,Pareto,1,1\n1200,0.5,1,Gamma,1,1\n", "names the law 'Pareto'"),
        ("0,1,1,Gamma,1\n", "line 1: 5 cells"),
        ("0,1,1,Gamma,one,1\n", "line 1: could not convert"),
        ("600,1,1,Gamma,1,1\n", "one window alone"),
    ],
)
def test_bad_windows_are_refused(rates, message, tmp_path):
    with pytest.raises(InvalidInputError, match=message):
        drawn_from(tmp_path, rates)


def test_a_format_says_how_many_files_it_takes(tmp_path):
    path = written(tmp_path, RATES)
    with pytest.raises(InvalidInputError, match="servegen takes a rates file and"):
        read_trace(path, "servegen")


# ---- public slices ------------------------------------------------------------------


@needs_slices
@pytest.mark.parametrize(
    ("name", "requests", "mean_isl", "mean_osl", "span_s", "gap_cv", "reuse"),
    [
        ("mooncake_conversation.jsonl", 1500, 13_988, 352, 510.0, None, 0.270),
        ("mooncake_synthetic.jsonl", 1100, 18_903, 87, 269.3, None, 0.638),
        ("azure_llm_2023_code.csv", 3000, 2_006, 28, 1089.0, None, 0.0),
        ("azure_llm_2023_conv.csv", 3000, 1_150, 259, 628.7, 1.09, 0.0),
        ("servegen_deepseek_r1_derived.jsonl", 1500, 60, 293, 5100.2, None, 0.0),
    ],
)
def test_public_slices_have_their_published_statistics(
    name, requests, mean_isl, mean_osl, span_s, gap_cv, reuse
):
    told = workload_statistics(read_trace(TRACES / name), 512)
    assert told.requests == requests
    assert round(told.mean_isl_tokens) == mean_isl
    assert round(told.mean_osl_tokens) == mean_osl
    assert told.span_ms / 1000 == pytest.approx(span_s, abs=0.06)
    assert told.reuse_bound == pytest.approx(reuse, abs=6e-4)
    if gap_cv:
        assert told.gap_cv == pytest.approx(gap_cv, abs=0.01)


@needs_slices
def test_native_instants_are_the_exact_differences():
    workload = read_trace(TRACES / "azure_llm_2023_conv.csv")
    assert workload.arrival_ms[1] == 43145790 / 10**4
