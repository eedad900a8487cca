"""Every recorded replay, from its configuration to the report and the records.

Instants to 1e-6 ms, counts exactly, aggregates to 1e-9; cases priced from performance
data to 1e-3 of every instant.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from replay_answers import predicted, printed_rows, unlike_row, unlike_summary
from replay_golden import INSTANT_MS, case_names, load_case, records


FAILING = ("e04_livelock_error", "e05_unchunked_error")
PRICED = ("l01_oplevel", "l02_oplevel_disagg")
EXACT = [name for name in case_names() if name not in FAILING + PRICED]
# Each of these compiles programs of its own.
LONG = (
    "c02_preempt_poly",
    "f03_dp2",
    "h03_2p2d",
    "h04_2p2d_tree",
    "h05_decode_pressure",
    "i03_trt_prefix",
    "i04_trt_tree",
    "i05_trt_1p1d",
    "j02_sgl_page16_poisson",
    "j03_sgl_pressure",
    "j05_sgl_prefix",
    "k03_tokenization",
    "l02_oplevel_disagg",
)
POOLS = ("agg", "prefill", "decode")


def marked(names: Iterable[str]) -> list[Any]:
    """Cases; the long ones are opt-in."""
    return [
        pytest.param(name, marks=pytest.mark.slow_replay) if name in LONG else name
        for name in names
    ]


def answer(case: dict[str, Any], folder: Path) -> Any:
    """The case predicted, its trace written to `folder`."""
    if case.get("rows"):
        (path,) = case["config"]["traffic"]["source"]["paths"]
        lines = [json.dumps(row) + "\n" for row in case["rows"]]
        (folder / path).write_text("".join(lines))
    return predicted(case["config"], folder)


def unlike_records(
    case: dict[str, Any], prediction: Any, relative: float = 0.0
) -> list[str]:
    """Requests that ended, column by column, and the history of their admissions."""
    printed = printed_rows(prediction)
    recorded = {(row.pop("session"), row.pop("turn")): row for row in records(case)}
    if printed.keys() != recorded.keys():
        return [f"other requests: {printed.keys() ^ recorded.keys()}"]
    found = []
    for place, theirs in recorded.items():
        where, mine = f"{place[0]}/{place[1]}", printed[place]
        theirs.pop("dp_rank", None)
        admissions = theirs.pop("admissions")
        found += unlike_row(
            where, mine, theirs, within_ms=INSTANT_MS, relative=relative
        )
        history = [
            [one["at_ms"], one["pool"], one["reused_input_tokens"]]
            for one in mine["admission_history"]
        ]
        same = [one[1:] for one in history] == [one[1:] for one in admissions]
        if not same or not np.allclose(
            [one[0] for one in history],
            [one[0] for one in admissions],
            rtol=relative,
            atol=INSTANT_MS,
        ):
            found.append(f"{where}: admissions {history} instead of {admissions}")
    return found


def unlike_tokens(
    case: dict[str, Any], prediction: Any, relative: float = 0.0
) -> list[str]:
    """Instants of all tokens of the requests that ended."""
    if case.get("token_times_ms") is None:
        return []
    run = prediction.runs[0]
    times, found = run.replayed.token_times(), []
    ended = np.flatnonzero(run.replayed.status != 0)
    # Recorded by session and turn; ours are in index order.
    names = list(map(json.loads, prediction.request_lines()))
    index = {
        (row["session_id"], row["turn_index"]): i
        for row, i in zip(names, ended.tolist(), strict=True)
    }
    for row, theirs in zip(records(case), case["token_times_ms"], strict=True):
        i = index[row["session"], row["turn"]]
        mine = times.at_ms[times.start[i] : times.start[i + 1]]
        if len(mine) != len(theirs) or not np.allclose(
            mine, theirs, rtol=relative, atol=INSTANT_MS
        ):
            found.append(f"{row['session']} tokens: {mine} instead of {theirs}")
    return found


def unlike_passes(case: dict[str, Any], prediction: Any) -> list[str]:
    """Runs of equal passes against the recorded passes of every worker.

    The instants inside a run are those of its tokens, which are compared elsewhere.
    """
    log = case.get("passes")
    if log is None:
        return []
    recorded: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in log["rows"]:
        one = dict(zip(log["columns"], row, strict=True))
        recorded.setdefault((one.get("pool", "agg"), one["worker"]), []).append(one)
    for rows in recorded.values():
        rows.sort(key=lambda one: (one["start_ms"], one["end_ms"]))
    found = []
    taken = dict.fromkeys(recorded, 0)
    runs = prediction.runs[0].replayed.passes()
    fields = runs._fields
    order = np.lexsort((runs.end_ms, runs.start_ms))
    for values in zip(*(column[order].tolist() for column in runs), strict=True):
        run = dict(zip(fields, values, strict=True))
        place = POOLS[run["pool"]], run["worker"]
        start = taken[place]
        taken[place] += run["passes"]
        theirs = recorded[place][start : taken[place]]
        if len(theirs) < run["passes"]:
            return [*found, f"{place}: more passes than {len(recorded[place])}"]
        found += _unlike_run(f"{place} pass {start}", run, theirs)
    found += [
        f"{place}: {count} passes instead of {len(recorded[place])}"
        for place, count in taken.items()
        if count != len(recorded[place])
    ]
    return found


def _unlike_run(
    where: str, run: dict[str, Any], theirs: list[dict[str, Any]]
) -> list[str]:
    found = []
    ends = [(run["start_ms"], theirs[0]["start_ms"])]
    ends += [(run["end_ms"], theirs[-1]["end_ms"])]
    if any(abs(mine - their) > INSTANT_MS for mine, their in ends):
        found.append(f"{where}: {ends}")
    counts = "prefill_requests", "sum_prompt_through_chunk", "sum_prefix"
    counts += "decode_requests", "sum_context"
    mine, first = [run[name] for name in counts], [theirs[0][name] for name in counts]
    if mine != first:
        found.append(f"{where} {counts}: {mine} instead of {first}")
    for one, after in pairwise(theirs):
        grown = one["sum_context"] + one["decode_requests"]
        steady = after["decode_requests"] == one["decode_requests"]
        if after["prefill_requests"] or not steady or after["sum_context"] != grown:
            found.append(f"{where}: {after} is no repetition of {one}")
    return found


@pytest.mark.parametrize("name", marked(EXACT))
def test_prediction_equals_the_recorded_replay(name: str, tmp_path: Path) -> None:
    case = load_case(name)
    prediction = answer(case, tmp_path)
    assert not unlike_records(case, prediction)[:5]
    assert not unlike_tokens(case, prediction)[:5]
    assert not unlike_passes(case, prediction)[:5]
    assert not unlike_summary(prediction.report, case["summary"])
    if case.get("preemptions") is not None:
        assert prediction.runs[0].replayed.preemptions == case["preemptions"]


@pytest.mark.parametrize(
    "name", marked(name for name in case_names() if name in PRICED)
)
def test_replay_priced_from_data_is_within_a_thousandth(
    name: str, tmp_path: Path
) -> None:
    case = load_case(name)
    prediction = answer(case, tmp_path)
    assert not unlike_records(case, prediction, relative=1e-3)[:5]
    assert not unlike_tokens(case, prediction, relative=1e-3)[:5]
    assert not unlike_summary(prediction.report, case["summary"], relative=1e-3)


@pytest.mark.parametrize("name", FAILING)
def test_request_that_never_proceeds_stops_the_run_in_the_references_words(
    name: str, tmp_path: Path
) -> None:
    from aisim_jax._errors import ReplayStalledError

    case = load_case(name)
    words = case["error"].partition("detected an ")[2]
    assert words
    with pytest.raises(ReplayStalledError, match=words):
        answer(case, tmp_path)
