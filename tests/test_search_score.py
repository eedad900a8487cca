"""Scores, gates and order of replayed candidates, against recorded searches."""

import json
import math

import pytest
from goldens import load_golden


RECORDED = {
    "agg_bayes": "throughput_per_gpu",
    "agg_random": "throughput_per_gpu",
    "domains": "throughput",
    "kv_fraction": "throughput",
    "min_gpus": "min_gpus",
    "pareto": "pareto",
    "infeasible": "throughput",
}


def golden(case):
    return load_golden(f"recommend/replay_{case}.json")


def metrics_of(row):
    done = row["metrics"]["completed_requests"]
    samples = dict.fromkeys(
        ("num_ttft_samples", "num_tpot_samples", "num_e2e_latency_samples"), done
    )
    return {**row["metrics"], **samples}


def goal_of(case):
    from aisim_jax.recommend.search import Goal
    from aisim_jax.replay import Bounds

    config = golden(case).get("config_yaml") or {}
    sla = config.get("evaluation", {}).get("sla")
    sought = config.get("optimization", {})
    return Goal(
        target=RECORDED[case],
        bounds=Bounds(**sla) if sla else None,
        strict=sought.get("strict_sla", False),
        min_goodput_rps=sought.get("constraints", {}).get("min_goodput_rps"),
    )


@pytest.mark.parametrize("case", RECORDED)
def test_recorded_metrics_get_their_recorded_score(case):
    from aisim_jax.recommend.search._score import judge

    for row in golden(case)["candidates"]:
        verdict = judge(metrics_of(row), row["used_gpus"], goal_of(case))
        assert verdict.status == row["status"]
        assert verdict.reason_category == row["reason_category"]
        if row["score"] is None:
            assert verdict.score is None
        else:
            assert verdict.score == pytest.approx(row["score"], rel=1e-9)
        for name, value in (row["objectives"] or {}).items():
            assert (verdict.objectives or {})[name] == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize("case", RECORDED)
def test_recorded_order_is_kept(case):
    from aisim_jax.recommend.search._ranking import Entry, ranked, trade_off
    from aisim_jax.recommend.search._score import judge

    rows = [row for row in golden(case)["candidates"] if row["status"] == "feasible"]
    entries = []
    for row in rows:
        verdict = judge(metrics_of(row), row["used_gpus"], goal_of(case))
        metrics = row["metrics"]
        entries.append(
            Entry(
                score=verdict.score or 0.0,
                used_gpus=row["used_gpus"],
                text=json.dumps(row["config"]),
                goodput=metrics.get("goodput_output_throughput_tok_s", 0.0),
                e2e_ms=metrics["mean_e2e_latency_ms"],
                objectives=tuple((verdict.objectives or {}).values()),
            )
        )
    order = ranked(entries, RECORDED[case])
    if RECORDED[case] == "pareto":
        order = trade_off(entries)
        assert sorted(order) == [i for i, row in enumerate(rows) if row["rank"]]
    places = [rows[place]["rank"] for place in order]
    values = [
        rows[place]["score"] for place in sorted(order, key=lambda i: rows[i]["rank"])
    ]
    # Candidates with equal figures may trade places.
    assert [rows[place]["score"] for place in order] == pytest.approx(values)
    assert sorted(places) == list(range(1, len(places) + 1))


def figures(**changes):
    return {
        "completed_requests": 10,
        "rejected_requests": 0,
        "duration_ms": 1000.0,
        "gpu_hours": 2 / 3600,
        "output_throughput_tok_s": 100.0,
        "mean_ttft_ms": 50.0,
        "mean_tpot_ms": 10.0,
        "mean_e2e_latency_ms": 500.0,
        "num_ttft_samples": 10,
        "num_tpot_samples": 10,
        "num_e2e_latency_samples": 10,
        **changes,
    }


def judged(target, *, bounds=None, strict=False, least=None, **changes):
    from aisim_jax.recommend.search import Goal
    from aisim_jax.recommend.search._score import judge
    from aisim_jax.replay import Bounds

    goal = Goal(target, Bounds(**bounds) if bounds else None, strict, least)
    return judge(figures(**changes), 2, goal)


def test_average_gpus_divide_the_throughput():
    assert judged("throughput_per_gpu").score == pytest.approx(50.0)


def test_latency_targets_want_less_and_samples():
    assert judged("ttft").score == -50.0
    assert judged("e2e_latency", num_e2e_latency_samples=0).score == -math.inf


def test_bounds_gate_means_inclusively_and_only_when_strict():
    bounds = {"ttft_ms": 50.0, "itl_ms": 9.0}
    assert judged("throughput", bounds=bounds).status == "feasible"
    missed = judged("throughput", bounds=bounds, strict=True)
    assert missed.reason_category == "sla_constraint"
    assert missed.reason == "mean TPOT 10 ms > 9 ms"
    assert judged("throughput", bounds={"ttft_ms": 50.0}, strict=True).score == 100.0


def test_a_bound_without_samples_is_missed():
    missed = judged(
        "throughput", bounds={"itl_ms": 9.0}, strict=True, num_tpot_samples=0
    )
    assert missed.reason == "no sample of TPOT to hold against 9 ms"


def test_min_gpus_needs_its_rate_within_the_bounds():
    ask = {"bounds": {"e2e_ms": 600.0}, "least": 3.0}
    low = judged("min_gpus", goodput_request_throughput_rps=2.5, **ask)
    assert (low.status, low.reason_category) == ("infeasible", "load_constraint")
    assert judged("min_gpus", goodput_request_throughput_rps=3.0, **ask).score == -2.0


def test_nothing_finished_is_a_reason_of_its_own():
    lost = judged("throughput", completed_requests=0, rejected_requests=10)
    assert lost.reason_category == "no_samples"
    assert lost.reason is not None and "KV cache" in lost.reason


def test_trade_off_keeps_equal_points():
    from aisim_jax.recommend.search._ranking import Entry, trade_off

    points = [(10.0, 1.0), (10.0, 1.0), (8.0, 3.0), (7.0, 2.0)]
    entries = [
        Entry(x, 1, str(i), objectives=(x, y)) for i, (x, y) in enumerate(points)
    ]
    assert trade_off(entries) == [0, 1, 2]
