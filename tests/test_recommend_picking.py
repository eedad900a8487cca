import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import sweep_oracle
from recommend_grids import FULL_DUMPS, columns, golden


@pytest.mark.parametrize("name", FULL_DUMPS.values())
@pytest.mark.parametrize("mode", [0, 1], ids=["agg", "disagg"])
def test_frontier_and_ranking_of_the_full_dumps(name, mode):
    from aisim_jax.recommend import pareto_front
    from aisim_jax.recommend._picking import cluster_rate_per_gpu, rank_for_budget

    figures = golden(name)
    dump = figures["candidates"][mode]
    column, width = columns(dump), len(dump["columns"])
    label = column["(d)parallel" if mode else "parallel"]
    gpus = column["num_total_gpus"].astype(np.int64)
    user = column["tokens/s/user"].astype(float)
    rate = column["tokens/s/gpu"].astype(float)
    cluster = cluster_rate_per_gpu(rate, gpus, 8)
    front = pareto_front(user, cluster)

    def rows(indices):
        return [tuple(dump["rows"][i]) for i in indices]

    def recorded(kind):
        return [tuple(r[:width]) for r in figures[kind][dump["mode"]]["rows"]]

    assert set(rows(front)) == set(recorded("pareto"))
    assert np.all(np.diff(user[front]) > 0)
    ranking = rank_for_budget(
        np.unique(label, return_inverse=True)[1],
        column["tpot"].astype(float),
        float(figures["inputs"]["tpot"]),
        cluster,
        -user,
        gpus,
        8,
        5,
    )
    assert rows(ranking.rows) == recorded("top")
    assert not ranking.exceeds


values = st.integers(-6, 6).map(float) | st.just(np.inf) | st.just(np.nan)


@given(points=st.lists(st.tuples(values, values), max_size=40))
@settings(max_examples=200, deadline=None)
def test_front_is_non_dominated_and_complete(points):
    from aisim_jax.recommend import pareto_front

    x, y = np.array(points, float).reshape(-1, 2).T
    finite = [i for i, p in enumerate(points) if np.all(np.isfinite(p))]
    expected = [finite[i] for i in sweep_oracle.front([points[i] for i in finite])]
    assert list(pareto_front(x, y)) == expected


def test_idle_gpus_of_the_cluster_are_charged():
    from aisim_jax.recommend._picking import cluster_rate_per_gpu

    rate = cluster_rate_per_gpu(np.array([10.0, 10.0]), np.array([3, 4]), 8)
    np.testing.assert_allclose(rate, [10.0 * 6 / 8, 10.0])


def test_ranking_falls_back_to_the_closest_rows():
    from aisim_jax.recommend._picking import rank_for_budget

    ranking = rank_for_budget(
        np.array([0, 0, 1]),
        np.array([40.0, 30.0, 20.0]),
        10.0,
        np.array([5.0, 6.0, 1.0]),
        np.zeros(3),
        np.array([1, 1, 1]),
        8,
        5,
    )
    assert ranking.exceeds
    assert list(ranking.rows) == [2, 1]


def load_ranking(load, **changes):
    from aisim_jax.recommend._picking import rank_for_load

    table = {
        "group": np.array([0, 0, 1]),
        "meets": np.array([True, True, True]),
        "load": load,
        "requests_per_s": np.array([2.0, 3.0, 9.0]),
        "concurrency": np.array([8.0, 16.0, 64.0]),
        "rate_per_gpu": np.array([2.0, 3.0, 2.25]),
        "replica_gpus": np.array([1, 1, 4]),
        "top_n": 5,
    }
    return rank_for_load(**{**table, **changes})


def test_a_load_gets_the_fewest_gpus():
    from aisim_jax.recommend import Load

    ranking = load_ranking(Load(request_rate=10.0))
    assert list(ranking.rows) == [1, 2]
    assert list(ranking.replicas) == [4, 2]
    assert list(ranking.gpus) == [4, 8]
    by_concurrency = load_ranking(Load(concurrency=40.0))
    assert list(by_concurrency.replicas) == [3, 1]


def test_a_gpu_ceiling_reports_the_share_that_is_served():
    from aisim_jax.recommend import Load

    load = Load(request_rate=100.0, max_gpus=4)
    ranking = load_ranking(load)
    assert list(ranking.rows) == [1, 2]
    assert list(ranking.load_served_percent) == [12.0, 9.0]
    ranking = load_ranking(load, compat=True)
    assert list(ranking.load_served_percent) == [round(100 * 4 / 34, 1), 8.3]


@pytest.mark.parametrize(
    "targets",
    [
        {},
        {"request_rate": 1.0, "concurrency": 2.0},
        {"request_rate": 0.0},
        {"concurrency": float("inf")},
    ],
)
def test_a_load_is_exactly_one_positive_number(targets):
    from aisim_jax import AisimError
    from aisim_jax.recommend import Load

    with pytest.raises(AisimError, match="load target"):
        load_ranking(Load(**targets))


@given(
    prefill=st.tuples(*[st.sampled_from([1, 2, 4, 8])] * 4),
    decode=st.tuples(*[st.sampled_from([1, 2, 4, 8])] * 4),
    workers=st.tuples(st.integers(1, 4), st.integers(1, 4)),
)
def test_one_footprint_counts_gpus_everywhere(prefill, decode, workers):
    from aisim_jax.models import Layout

    names = ("tp", "pp", "dp", "cp")
    p, d = (Layout(**dict(zip(names, x, strict=True))) for x in (prefill, decode))
    assert p.gpus == np.prod(prefill)
    assert workers[0] * p.gpus + workers[1] * d.gpus == sum(
        count * np.prod(sizes)
        for count, sizes in zip(workers, (prefill, decode), strict=True)
    )


def test_context_parallel_workers_are_charged_in_full():
    from aisim_jax.models import Layout
    from aisim_jax.recommend._picking import cluster_rate_per_gpu

    replica = 2 * Layout(cp=8).gpus + Layout(tp=8).gpus
    assert replica == 24
    assert 32 // replica == 1
    rate = cluster_rate_per_gpu(np.array([240.0 / replica]), np.array([replica]), 32)
    np.testing.assert_allclose(rate, 240.0 / 32)
