"""Traces with block contents: instants, sessions, shared prompts, and bad lines."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import replay_golden

from aisim_jax._errors import InvalidInputError
from aisim_jax.traffic import HashBlocks, Workload, read_trace, workload_statistics


def row(isl: int, osl: int, ids: list[Any], **more: Any) -> dict[str, Any]:
    return {"input_length": isl, "output_length": osl, "hash_ids": ids, **more}


def written(folder: Path, *rows: Any) -> Path:
    path = folder / "trace.jsonl"
    lines = [r if isinstance(r, str) else json.dumps(r) for r in rows]
    path.write_text("\n".join(lines) + "\n")
    return path


def block_rows(workload: Workload, block: int) -> list[list[int]]:
    keys = workload.contents.block_keys(workload.isl_tokens, workload.osl_tokens, block)
    return [r.tolist() for r in np.split(keys.ids, keys.start[1:-1])]


def shared_blocks(workload: Workload, block: int, one: int, other: int) -> int:
    """Leading blocks that two requests have in common."""
    rows = block_rows(workload, block)
    return len(set(rows[one]) & set(rows[other]))


@pytest.mark.parametrize("name", replay_golden.case_names())
def test_a_recorded_trace_arrives_when_the_reference_has_it_arrive(name, tmp_path):
    case = replay_golden.load_case(name)
    if not case["rows"]:
        return
    source = case["config"]["traffic"]["source"]
    load = case["config"]["traffic"]["load"]
    workload = read_trace(
        written(tmp_path, *case["rows"]),
        block_tokens=source["block_size"],
        speedup=load.get("speedup", 1.0),
        max_in_flight=load.get("concurrency"),
    )
    assert workload.session_names is not None
    place = {
        (workload.session_names[session], turn): at
        for at, (session, turn) in enumerate(
            zip(workload.session.tolist(), workload.turn.tolist(), strict=True)
        )
    }
    records = {(r["session"], r["turn"]): r for r in replay_golden.records(case)}
    for (session, turn), record in records.items():
        at = place[session, turn]
        assert workload.isl_tokens[at] == record["input_tokens"]
        assert workload.osl_tokens[at] == record["requested_output_tokens"]
        if load["type"] == "concurrency":
            continue
        if turn == 0:
            assert workload.arrival_ms[at] == record["arrival_ms"]
        else:
            ended = records[session, turn - 1]["terminal_time_ms"]
            assert record["arrival_ms"] == pytest.approx(
                ended + workload.delay_ms[at], abs=1e-9
            )


# ---- instants -----------------------------------------------------------------------


def test_the_first_instant_is_zero_and_rows_stay_in_file_order(tmp_path):
    path = written(
        tmp_path,
        row(1, 1, [1], timestamp=70),
        row(2, 1, [1], timestamp=-30.5),
        row(3, 1, [1], timestamp=70),
    )
    workload = read_trace(path, speedup=2.0)
    assert workload.arrival_ms.tolist() == [100.5 / 2, 0.0, 100.5 / 2]
    assert workload.isl_tokens.tolist() == [1, 2, 3]


def test_every_row_may_share_its_instant(tmp_path):
    path = written(
        tmp_path, *(row(8, 1, [k], timestamp=3000 * (k // 4)) for k in range(8))
    )
    workload = read_trace(path)
    assert workload.arrival_ms.tolist() == [0.0] * 4 + [3000.0] * 4
    assert workload_statistics(workload).sharing_an_instant == 8


def test_a_closed_loop_ignores_instants(tmp_path):
    path = written(tmp_path, row(1, 1, [1], timestamp=70), row(1, 1, [1]))
    workload = read_trace(path, max_in_flight=2, speedup=3.0)
    assert workload.arrival_ms.tolist() == [0.0, 0.0]
    assert workload.max_in_flight == 2


def test_a_missing_instant_is_an_error_or_zero_on_demand(tmp_path):
    path = written(tmp_path, row(1, 1, [1]), row(1, 1, [1], timestamp=100))
    with pytest.raises(InvalidInputError, match=r"trace\.jsonl, line 1: the timestamp"):
        read_trace(path)
    assert read_trace(path, missing_as_zero=True).arrival_ms.tolist() == [0.0, 100.0]


def test_without_any_instant_everything_arrives_at_once(tmp_path):
    path = written(tmp_path, row(1, 1, [1]), row(1, 1, [1]))
    assert read_trace(path).arrival_ms.tolist() == [0.0, 0.0]


def test_blank_lines_count_in_the_names(tmp_path):
    path = written(tmp_path, row(1, 1, [1]), "", "  ", row(1, 1, [1], request_id="x"))
    assert read_trace(path).session_names == ("request_1", "request_4")


def test_a_compressed_trace_is_the_same_trace(tmp_path):
    path = tmp_path / "trace.jsonl.gz"
    with gzip.open(path, "wt") as stream:
        stream.write(json.dumps(row(5, 2, [3], timestamp=1)))
    assert read_trace(path).isl_tokens.tolist() == [5]


# ---- sessions -----------------------------------------------------------------------


def test_delays_come_from_the_row_or_from_the_last_known_instant(tmp_path):
    path = written(
        tmp_path,
        row(16, 2, [1], session_id="a", timestamp=10),
        row(16, 2, [9], timestamp=30),
        row(16, 2, [1], session_id="a", timestamp=110),
        row(16, 2, [1], session_id="b", timestamp=0),
        row(16, 2, [1], session_id="b", delay=20),
        row(16, 2, [1], session_id="b"),
        row(16, 2, [1], session_id="b", timestamp=1500),
        row(16, 2, [1], session_id="a", timestamp=999, delay=3),
    )
    workload = read_trace(path, speedup=2.0)
    assert workload.session.tolist() == [0, 1, 0, 2, 2, 2, 2, 0]
    assert workload.turn.tolist() == [0, 0, 1, 0, 1, 2, 3, 2]
    assert workload.delay_ms.tolist() == [0, 0, 50, 0, 10, 0, 750, 1.5]
    assert workload.arrival_ms[[0, 1, 3]].tolist() == [5.0, 15.0, 0.0]
    assert np.isnan(workload.arrival_ms[workload.turn > 0]).all()
    assert workload.session_names == ("a", "request_2", "b")
    closed = read_trace(path, max_in_flight=1, speedup=2.0)
    assert closed.delay_ms.tolist() == [0, 0, 100, 0, 20, 0, 1500, 3]


def test_only_first_turns_set_the_start(tmp_path):
    path = written(
        tmp_path,
        row(16, 2, [1], session_id="a", timestamp=100),
        row(16, 2, [1], session_id="a", timestamp=10, delay=5),
        row(16, 2, [2], timestamp=60),
    )
    assert read_trace(path).arrival_ms[[0, 2]].tolist() == [40.0, 0.0]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [
                row(1, 1, [1], session_id="a", timestamp=100),
                row(1, 1, [1], session_id="a", timestamp=40),
            ],
            "line 2: the delay after the turn before is negative",
        ),
        (
            [
                row(1, 1, [1], session_id="a", timestamp=0),
                row(1, 1, [1], session_id="a", delay=-3),
            ],
            "line 2: the delay after the turn before is negative",
        ),
        (
            [row(1, 1, [1], session_id="a", timestamp=1, delay=7)],
            "line 1: delay is set on the first turn",
        ),
        (
            [
                row(1, 1, [1], session_id="a"),
                row(1, 1, [1], session_id="a", timestamp=140),
            ],
            "line 2: no earlier row of the session has a timestamp",
        ),
    ],
)
def test_a_session_that_cannot_be_timed_is_refused(rows, message, tmp_path):
    with pytest.raises(InvalidInputError, match=message):
        read_trace(written(tmp_path, *rows), missing_as_zero=True)


# ---- increments ---------------------------------------------------------------------


def test_increments_add_up_to_prompts(tmp_path):
    path = written(
        tmp_path,
        row(32, 2, [1, 2], session_id="a", timestamp=0),
        row(32, 2, [1, 2], session_id="b", timestamp=5),
        row(14, 2, [3], session_id="a", timestamp=100),
        row(16, 2, [4], session_id="a", timestamp=150),
        row(0, 1, [], session_id="b", timestamp=160),
        row(30, 2, [1, 2], timestamp=170),
    )
    workload = read_trace(path, "mooncake-delta", block_tokens=16)
    assert workload.isl_tokens.tolist() == [32, 32, 48, 66, 34, 30]
    assert shared_blocks(workload, 16, 0, 1) == 2
    assert shared_blocks(workload, 16, 2, 3) == 3
    assert shared_blocks(workload, 16, 1, 3) == 2
    assert shared_blocks(workload, 16, 0, 5) == 1
    assert workload.contents.shares()


# ---- contents -----------------------------------------------------------------------


def test_ids_may_be_any_unsigned_64_bit_number(tmp_path):
    big = [2**64 - 1, 2**32 + 1, 1, 0]
    path = written(
        tmp_path, row(2048, 1, big), row(1024, 1, [2**64 - 1, 1]), row(512, 1, [1])
    )
    workload = read_trace(path)
    assert shared_blocks(workload, 512, 0, 1) == 1
    assert shared_blocks(workload, 512, 0, 2) == shared_blocks(workload, 512, 1, 2) == 0


def test_more_ids_than_needed_are_ignored(tmp_path):
    workload = read_trace(written(tmp_path, row(512, 1, [1, 2]), row(513, 1, [1, 3])))
    contents = workload.contents
    assert isinstance(contents, HashBlocks)
    assert contents.label.tolist() == [1, 1, 3]


def test_unknown_keys_are_ignored(tmp_path):
    assert read_trace(written(tmp_path, row(5, 1, [1], priority=3))).size == 1


def test_an_output_of_zero_is_a_request(tmp_path):
    assert read_trace(written(tmp_path, row(5, 0, [1]))).osl_tokens.tolist() == [0]


def test_a_slice_has_a_lower_reuse_bound_than_the_whole(tmp_path):
    rows = [row(1024, 1, [k // 4, 100 + k]) for k in range(8)]
    whole = read_trace(written(tmp_path, *rows))
    assert workload_statistics(whole, 512).reuse_bound == 6 / 16
    part = read_trace(written(tmp_path, *rows[3:]))
    assert workload_statistics(part, 512).reuse_bound == 3 / 10


# ---- bad lines ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (row(17, 1, [1]), "needs 2 hash_ids, got 1; add ids"),
        ({"input_length": 5, "output_length": 1}, "hash_ids is None; write a list"),
        (row(5, 1, [-1]), "hash id -1 must be an integer in 0 .. 2"),
        (row(5, 1, [2**64]), "hash id 18446744073709551616 must"),
        (row(5, 1, [1.0]), "hash id 1.0 must"),
        (row(5, 1, ["1"]), "hash id '1' must"),
        (row(0, 1, []), "input_length = 0 is outside 1"),
        (row(-4, 1, []), "input_length = -4 is outside 1"),
        (row(5, -1, [1]), "output_length = -1 is outside 0"),
        ({"input_length": 600.0, "output_length": 1}, "input_length is 600.0"),
        ({"input_length": True, "output_length": 1}, "input_length is True"),
        ({"output_length": 1}, "input_length is None"),
        (row(5, 1, [1], timestamp="3"), "timestamp is '3', which is no number"),
        (
            row(5, 1, [1], timestamp=float("nan")),
            "timestamp is nan, which is not finite",
        ),
        (row(5, 1, [1], session_id=7), "session_id is 7; write a text"),
        ("{'input_length': 5}", "this is no JSON"),
        ("[1]", "is no JSON object"),
    ],
)
def test_a_bad_line_is_named_with_its_value_and_a_remedy(bad, message, tmp_path):
    path = written(tmp_path, row(5, 1, [1], timestamp=1), "", bad)
    with pytest.raises(InvalidInputError, match=rf"trace\.jsonl, line 3: .*{message}"):
        read_trace(path, "mooncake", block_tokens=16)


def test_an_empty_or_absent_trace_is_refused(tmp_path):
    path = tmp_path / "trace.jsonl"
    with pytest.raises(InvalidInputError, match="no such trace file"):
        read_trace(path)
    path.write_text("\n")
    with pytest.raises(InvalidInputError, match="no request"):
        read_trace(path, "mooncake")
