import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import sweep_oracle
from recommend_grids import DISAGGREGATED, columns, golden, role_rows


def limits(**changes):
    from aisim_jax.recommend import COMPAT
    from aisim_jax.recommend._rate_matching import ReplicaLimits

    values = {
        "max_prefill_workers": 32,
        "max_decode_workers": 32,
        "max_gpus": 8,
        "gpus": COMPAT.replica_gpus,
    }
    return ReplicaLimits(**{**values, **changes})


def matched(prefill, decode, pairable, limits):
    from aisim_jax.recommend import COMPAT
    from aisim_jax.recommend._rate_matching import match_workers

    return match_workers(
        prefill.requests_per_s,
        prefill.gpus,
        decode.requests_per_s,
        decode.gpus,
        pairable,
        limits,
        COMPAT.roles,
    )


@pytest.mark.parametrize("name", DISAGGREGATED)
def test_kept_deployments_equal_the_recorded_result(name):
    from aisim_jax.kernels import compose_disaggregated
    from aisim_jax.recommend import COMPAT
    from aisim_jax.recommend._disaggregation import kept_pairs
    from aisim_jax.recommend._grids import tpot_targets

    figures = golden(name)
    prefill, decode = (role_rows(figures[f"{r}_rows"]) for r in ("prefill", "decode"))
    p_column, d_column = (columns(figures[f"{r}_rows"]) for r in ("prefill", "decode"))
    pairable = np.ones((decode.gpus.size, prefill.gpus.size), bool)
    if figures["inputs"]["decode_backend_name"] == "sglang":
        pairable = d_column["tp"].astype(int)[:, None] == p_column["tp"].astype(int)
    pairs = matched(prefill, decode, pairable, limits())
    osl = figures["inputs"]["osl"]
    targets = tpot_targets(float(figures["ttft_target"]))
    kept = kept_pairs(prefill, decode, pairs, targets, osl, COMPAT)
    recorded = columns(figures["result"])
    expected = {}
    for i, key in enumerate(
        zip(
            recorded["(p)parallel"],
            recorded["(p)bs"],
            recorded["(p)workers"],
            recorded["(d)parallel"],
            recorded["(d)bs"],
            recorded["(d)workers"],
            strict=True,
        )
    ):
        expected[tuple(map(str, key))] = i
    found = {}
    for p, d in kept:
        workers = pairs.prefill_workers[d, p], pairs.decode_workers[d, p]
        key = (
            prefill.label[p],
            p_column["bs"][p],
            workers[0],
            decode.label[d],
            d_column["bs"][d],
            workers[1],
        )
        found[tuple(map(str, key))] = (p, d, *workers)
    assert found.keys() == expected.keys()
    for key, (p, d, *workers) in found.items():
        metrics = compose_disaggregated(
            prefill.ttft_ms[p],
            decode.tpot_ms[d],
            prefill.requests_per_s[p],
            decode.requests_per_s[d],
            workers[0],
            workers[1],
            osl - 1.0,
            COMPAT.roles,
        )
        row = expected[key]
        gpus = workers[0] * prefill.gpus[p] + workers[1] * decode.gpus[d]
        assert gpus == int(recorded["num_total_gpus"][row])
        for value, column in (
            (metrics.ttft_ms, "ttft"),
            (metrics.request_latency_ms, "request_latency"),
            (metrics.requests_per_s, "seq/s"),
            (metrics.requests_per_s * osl, "tokens/s"),
            (metrics.requests_per_s * osl / gpus, "tokens/s/gpu"),
        ):
            assert abs(value - float(recorded[column][row])) <= 0.000501 + 1e-9 * value


DISAGGREGATED_POINTS = [c for c in golden("estimates") if c["id"].startswith("dis")]


@pytest.mark.parametrize("case", DISAGGREGATED_POINTS, ids=lambda case: case["id"])
def test_single_deployments_compose_from_their_phases(case):
    from aisim_jax.kernels import (
        compose_disaggregated,
        compose_static,
        speculate_decode,
    )
    from aisim_jax.recommend import COMPAT

    inputs, result, phases = case["inputs"], case["result"], case["per_phase_ms"]
    later = inputs["osl"] - 1.0
    progress = 1.0 + inputs.get("nextn_accepted", 0.0)
    p_ranks = inputs.get("prefill_attention_dp_size", 1)
    d_ranks = inputs.get("decode_attention_dp_size", 1)
    prefill = compose_static(
        np.array(phases["prefill"]),
        np.array(0.0),
        inputs["prefill_batch_size"] * p_ranks,
        1.0,
        later,
    )
    decode = compose_static(
        np.array(0.0),
        np.array(phases["decode"]),
        inputs["decode_batch_size"] * d_ranks,
        1.0,
        later,
    )
    decode = type(decode)(*(np.round(x, 3) for x in decode))
    if progress > 1:
        decode = speculate_decode(decode, progress)
    prefill_rate = np.round(prefill.requests_per_s, 3)
    decode_rate = np.round(decode.requests_per_s, 3)
    assert prefill_rate == result["(p)seq/s/worker"]
    assert decode_rate == result["(d)seq/s/worker"]
    metrics = compose_disaggregated(
        np.round(prefill.ttft_ms, 3),
        np.round(decode.tpot_ms, 3),
        prefill_rate,
        decode_rate,
        inputs["prefill_num_workers"],
        inputs["decode_num_workers"],
        later,
        COMPAT.roles,
    )
    assert np.round(metrics.ttft_ms, 3) == result["ttft"]
    assert np.round(metrics.request_latency_ms, 3) == result["request_latency"]
    assert np.round(metrics.requests_per_s, 3) == result["seq/s"]
    assert np.round(metrics.requests_per_s * inputs["osl"], 3) == result["tokens/s"]


workers = st.tuples(st.integers(1, 400).map(lambda n: n / 8), st.integers(1, 6))


@given(
    prefill=st.lists(workers, min_size=1, max_size=4),
    decode=st.lists(workers, min_size=1, max_size=4),
    budget=st.integers(2, 64),
)
@settings(max_examples=60, deadline=None)
def test_matching_equals_the_full_search(prefill, decode, budget):
    from aisim_jax.recommend import COMPAT
    from aisim_jax.recommend._rate_matching import match_workers

    (p_rate, p_gpus), (d_rate, d_gpus) = (
        [np.array(x) for x in zip(*rows, strict=True)] for rows in (prefill, decode)
    )
    pairs = match_workers(
        p_rate.astype(float),
        p_gpus,
        d_rate.astype(float),
        d_gpus,
        np.ones((len(decode), len(prefill)), bool),
        limits(max_gpus=budget, max_prefill_workers=9, max_decode_workers=7),
        COMPAT.roles,
    )
    allowed = {n for n in COMPAT.replica_gpus if n <= budget}
    for i, p_row in enumerate(prefill):
        for j, d_row in enumerate(decode):
            shape = sweep_oracle.match(p_row, d_row, (9, 7), allowed, (0.9, 0.92))
            if shape is None:
                assert pairs.requests_per_s[j, i] == -np.inf
            else:
                found = pairs.prefill_workers[j, i], pairs.decode_workers[j, i]
                assert found == shape


@given(seed=st.integers(0, 2**32 - 1), same_tp=st.booleans())
@settings(max_examples=15, deadline=None)
def test_kept_deployments_equal_the_plain_loop(seed, same_tp):
    from aisim_jax.recommend import COMPAT
    from aisim_jax.recommend._disaggregation import RoleRows, kept_pairs
    from aisim_jax.recommend._grids import Target

    random = np.random.default_rng(seed)

    def draw(count, role):
        rates = np.round(random.permutation(count) + random.random(count) + 1, 3)
        return [
            {
                "label": f"tp{2 ** (i % 3)}",
                "tp": 2 ** (i % 3),
                "gpus": 2 ** (i % 3),
                "concurrency": float(i + 1),
                "ttft": round(random.random() * 1000, 3) if role == "prefill" else 0.0,
                "tpot": round(random.random() * 50, 3) if role == "decode" else 0.0,
                "rate": rates[i],
                "rate_per_gpu": rates[i] / 2 ** (i % 3),
            }
            for i in range(count)
        ]

    def table(rows):
        def column(name):
            return np.array([row[name] for row in rows])

        return RoleRows(
            tuple(row["label"] for row in rows),
            column("gpus"),
            column("concurrency"),
            column("ttft"),
            column("tpot"),
            column("rate"),
            column("rate_per_gpu"),
        )

    prefill, decode = draw(12, "prefill"), draw(60, "decode")
    targets = [Target(t, p) for t in (700.0, 1500.0) for p in (5.0, 20.0, 40.0)]
    p_rows, d_rows = table(prefill), table(decode)
    pairable = (d_rows.gpus[:, None] == p_rows.gpus) | (not same_tp)
    pairs = matched(p_rows, d_rows, pairable, limits())
    kept = {
        (p, d, pairs.prefill_workers[d, p], pairs.decode_workers[d, p])
        for p, d in kept_pairs(p_rows, d_rows, pairs, targets, 100, COMPAT)
    }
    allowed = {n for n in COMPAT.replica_gpus if n <= 8}
    assert kept == sweep_oracle.disaggregated(
        prefill, decode, targets, 100, (32, 32), allowed, same_tp
    )


@given(
    rates=st.tuples(st.floats(0.01, 100), st.floats(0.01, 100)),
    workers=st.tuples(st.integers(1, 40), st.integers(1, 40)),
)
def test_adding_a_worker_never_lowers_capacity(rates, workers):
    from aisim_jax.kernels import pool_rate_per_s
    from aisim_jax.recommend import COMPAT

    p_rate, d_rate = (np.float64(rate) for rate in rates)

    def capacity(p, d):
        return pool_rate_per_s(p_rate, d_rate, p, d, COMPAT.roles)

    p, d = workers
    assert capacity(p + 1, d) >= capacity(p, d)
    assert capacity(p, d + 1) >= capacity(p, d)
