"""Searches against what the reference's sampling found on the same questions."""

import json
import os

import numpy as np
import pytest
import yaml
from goldens import COMPACT, FULL, load_golden


# Two cases ask for a system whose tables are not packaged.
L40S = pytest.mark.needs_systems_tree
SERVED = (
    "agg_bayes",
    "agg_random",
    "domains",
    pytest.param("kv_fraction", marks=L40S),
    "min_gpus",
    "pareto",
)
CASES = (*SERVED, pytest.param("infeasible", marks=L40S))


def question(case):
    """The recorded configuration, every candidate wanted."""
    golden = load_golden(f"recommend/replay_{case}.json")
    document = golden.get("config_yaml")
    if document is None:
        name = f"recommend/{golden['config_file']}"
        full = FULL / name
        path = full if full.exists() else COMPACT / name
        document = yaml.safe_load(path.read_text())
    document = json.loads(json.dumps(document))
    document.pop("optimizer", None)
    if document["engine"]["hardware"] == "l40s":
        document["engine"]["systems_paths"] = [os.environ["AISIM_SYSTEMS_TREE"]]
    return document


@pytest.fixture(scope="module")
def answers():
    from aisim_jax.config import load_recommendation
    from aisim_jax.recommend.search import recommend

    known = {}

    def answer(case):
        if case not in known:
            known[case] = recommend(load_recommendation(question(case)))
        return known[case]

    return answer


@pytest.mark.parametrize("case", CASES)
def test_no_candidate_beats_its_bound(case, answers):
    from aisim_jax.recommend.search._order import reaches

    answer = answers(case)
    judged = [one for one in answer.outcomes if one.verdict.score is not None]
    most = reaches([one.candidate for one in judged], answer.goal)
    for one, reach in zip(judged, most, strict=True):
        found = one.verdict.objectives or {"score": one.verdict.score}
        assert all(x <= y for x, y in zip(found.values(), reach, strict=True))


@pytest.mark.parametrize("case", SERVED)
def test_best_is_at_least_the_recorded_best(case, answers):
    golden = load_golden(f"recommend/replay_{case}.json")
    best = max(row["score"] for row in golden["candidates"] if row["score"] is not None)
    found = answers(case).feasible[0].verdict.score
    assert found >= best - 1e-9 * abs(best)


def test_recorded_trade_off_is_equalled_or_dominated(answers):
    golden = load_golden("recommend/replay_pareto.json")
    names = ("throughput_per_gpu", "throughput_per_user")
    ours = np.array(
        [[one.verdict.objectives[n] for n in names] for one in answers("pareto").chosen]
    )
    for row in golden["candidates"]:
        point = np.array([row["objectives"][name] for name in names])
        assert (ours >= point - 1e-9 * np.abs(point)).all(axis=1).any()


@pytest.mark.parametrize("case", CASES)
def test_recorded_candidates_score_what_was_recorded(case, answers):
    """Every recorded candidate is one of ours or stands behind one of ours."""
    from aisim_jax.recommend.search import flat_settings

    keys = ("replicas", "tp", "attention_dp", "moe_tp", "moe_ep")
    golden = load_golden(f"recommend/replay_{case}.json")
    ours = {}
    for outcome in answers(case).outcomes:
        flat = flat_settings(outcome.candidate)
        shape = tuple(
            flat.get(prefix + key)
            for prefix in ("", "prefill_", "decode_")
            for key in keys
        )
        throughput = outcome.metrics["output_throughput_tok_s"]
        ours.setdefault((shape, flat.get("concurrency")), []).append(throughput)
    for row in golden["candidates"]:
        config = row["config"]
        shape = tuple(
            config.get(prefix + key)
            for prefix in ("", "prefill_", "decode_")
            for key in keys
        )
        found = ours.get((shape, config.get("concurrency")), [])
        if case == "domains" and not found:
            continue  # a load between the powers of two that we try
        wanted = row["metrics"]["output_throughput_tok_s"]
        assert any(value == pytest.approx(wanted, rel=1e-9) for value in found)


@L40S
def test_nothing_feasible_names_the_closest(answers):
    answer = answers("infeasible")
    assert not answer.feasible
    assert answer.coverage.replayed
    for outcome in answer.outcomes:
        assert outcome.verdict.reason_category == "sla_constraint"
        assert "mean TTFT" in outcome.verdict.reason
    closest = answer.outcomes[answer.closest]
    assert closest.metrics["mean_ttft_ms"] == min(
        one.metrics["mean_ttft_ms"] for one in answer.outcomes
    )
