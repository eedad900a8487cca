"""The replay oracle equals every recorded case that it covers.

AISIM_REPLAY_FULL=1 adds the long trace cases.
"""

import os

import pytest
from oracle.replay_inputs import Stuck
from oracle.replay_oracle import SCHEDULERS, replay
from oracle.replay_summary import summary
from replay_golden import (
    case_names,
    differences,
    load_case,
    scenario,
    summary_differences,
)
from replay_traces import TRACE_CASES, trace_case, trace_differences


def covered(name):
    case = load_case(name)
    known = case["config"]["engine"]["backend"] in SCHEDULERS
    return known and not case.get("depends_on_performance_data")


COVERED = [name for name in case_names() if covered(name)]
FAILING = [name for name in COVERED if "error" in load_case(name)]
QUICK_TRACES = (
    "p04_synth_pressure",
    "p05_code_burst_poly",
    "p06_chat_1p1d",
    "p07_arxiv_closed",
    "p11_reason_derived",
)


def trace_names():
    every = os.environ.get("AISIM_REPLAY_FULL") == "1"
    return [
        name
        for name in TRACE_CASES
        if (every or name in QUICK_TRACES)
        and trace_case(name)["config"]["engine"]["backend"] in SCHEDULERS
    ]


def aggregates(case, inputs, outcome):
    gpus = {role: case["summary"][f"{role}_gpus_per_worker"] for role in ROLES}
    return summary(inputs, outcome, gpus, case["resolved"].get("sla"))


ROLES = ("prefill", "decode")


@pytest.mark.parametrize("name", [name for name in COVERED if name not in FAILING])
def test_oracle_equals_the_recorded_replay(name):
    case = load_case(name)
    inputs, sessions = scenario(case)
    outcome = replay(inputs)
    assert not differences(case, outcome, sessions)
    figures = aggregates(case, inputs, outcome)
    assert not summary_differences(case["summary"], figures)


@pytest.mark.parametrize("name", FAILING)
def test_request_that_can_never_proceed_stops_the_run(name):
    inputs, _ = scenario(load_case(name))
    with pytest.raises(Stuck, match="2 requests in flight"):
        replay(inputs)


def test_oracle_equals_the_recorded_replay_of_public_traces():
    for name in trace_names():
        case = trace_case(name)
        inputs, _ = scenario(case)
        outcome = replay(inputs)
        assert not trace_differences(case, outcome)[:5], name
        figures = aggregates(case, inputs, outcome)
        assert not summary_differences(case["summary"], figures), name
