import numpy as np
import pytest
from recommend_grids import AGGREGATED, aggregated_tuples, golden


ESTIMATES = {case["id"]: case for case in golden("estimates")}
SCHEDULED = sorted(name for name, case in ESTIMATES.items() if "scheduling" in case)


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-12)


def policy(backend):
    from aisim_jax.recommend import COMPAT

    return COMPAT.engine(backend)


def scheduled(column, inputs, progress=1.0):
    from aisim_jax.recommend import schedule_batch

    backend = inputs["backend_name"]
    return schedule_batch(
        column["b"],
        column["ctx"],
        inputs["isl"],
        inputs["osl"],
        progress,
        policy(backend).schedule,
    )


@pytest.mark.parametrize("name", [*AGGREGATED, "grid_agg_xpu"])
def test_grid_points_are_scheduled_as_recorded(name):
    for figures, _, column in aggregated_tuples(name):
        schedule = scheduled(column, figures["inputs"])
        close(schedule.mixed_requests, column["mix_decode_requests"])
        close(schedule.steps.mixed_steps, column["num_mix_steps"])
        close(schedule.steps.decode_steps, column["num_genonly_steps"])


@pytest.mark.parametrize("name", AGGREGATED)
def test_grid_points_compose_from_their_step_times(name):
    from aisim_jax.kernels import compose_aggregated

    for figures, entry, column in aggregated_tuples(name):
        inputs = figures["inputs"]
        schedule = scheduled(column, inputs)
        later = inputs["osl"] - 1.0
        metrics = compose_aggregated(
            column["mix_ms"],
            column["genonly_ms"],
            schedule.steps,
            column["b"],
            later,
            1.0,
            float(entry["layers"]),
            0.0,
            policy(inputs["backend_name"]).queue,
        )
        close(metrics.ttft_ms, column["ttft"])
        close(metrics.tpot_ms, column["tpot"])
        close(metrics.tokens_per_s, column["tokens_s"])
        close(metrics.tokens_per_s / later, column["seq_s"])
        latency = metrics.ttft_ms + metrics.tpot_ms * later
        close(latency, column["request_latency"])


LAYERS = {
    "Qwen/Qwen3-32B-FP8": 64.0,
    "meta-llama/Meta-Llama-3.1-70B": 80.0,
    "meta-llama/Meta-Llama-3.1-8B": 32.0,
    "Qwen/Qwen3-235B-A22B-FP8": 94.0,
    "deepseek-ai/DeepSeek-V3": 61.0,
}


@pytest.mark.parametrize(
    "name", [n for n in SCHEDULED if ESTIMATES[n]["inputs"]["system_name"] != "b60"]
)
def test_single_points_compose_from_their_step_times(name):
    from aisim_jax.kernels import compose_aggregated

    case = ESTIMATES[name]
    inputs, result, steps = case["inputs"], case["result"], case["scheduling"]
    progress = steps["decode_tokens_per_iteration"]
    batch = np.array([float(inputs["batch_size"])])
    ctx = np.array([float(inputs.get("ctx_tokens", inputs["isl"]))])
    schedule = scheduled({"b": batch, "ctx": ctx}, inputs, progress)
    close(schedule.steps.mixed_steps, steps["num_mix_steps"])
    close(schedule.steps.decode_steps, steps["num_genonly_steps"])
    close(schedule.mixed_requests, steps["mix_decode_requests"])
    close(schedule.balance, result["balance_score"])
    later = inputs["osl"] - 1.0
    metrics = compose_aggregated(
        np.array([steps["mix_step_latency_ms"]]),
        np.array([steps["genonly_step_latency_ms"]]),
        schedule.steps,
        batch,
        later,
        progress,
        LAYERS.get(inputs["model_path"], 0.0),
        0.0,
        policy(inputs["backend_name"]).queue,
    )
    ranks = inputs.get("attention_dp_size", 1) * inputs.get("pp_size", 1)
    close(metrics.tpot_ms, case["tpot"])
    close(metrics.tokens_per_s * ranks, result["tokens/s"])
    close(metrics.ttft_ms, case["ttft"])


@pytest.mark.parametrize("name", ["sta01", "sta03", "sta04", "sta06", "sta07"])
def test_static_points_compose_from_their_phases(name):
    from aisim_jax.kernels import compose_static

    case = ESTIMATES[name]
    result, inputs = case["result"], case["inputs"]
    metrics = compose_static(
        np.array(float(result["context_latency"])),
        np.array(float(result["generation_latency"])),
        float(result["concurrency"]),
        1.0,
        inputs["osl"] - 1.0,
    )
    close(metrics.ttft_ms, result["ttft"])
    close(metrics.tpot_ms, result["tpot"])
    close(metrics.request_latency_ms, result["request_latency"])
    close(metrics.requests_per_s, result["seq/s"])


def test_xpu_points_compose_from_their_step_times():
    """The context-attention share of a step is not recorded: it is taken from one point
    per budget (it does not depend on the batch) and must explain all others."""
    from aisim_jax.kernels import compose_aggregated_xpu
    from aisim_jax.recommend import COMPAT, schedule_xpu

    for figures, entry, column in aggregated_tuples("grid_agg_xpu"):
        inputs = figures["inputs"]
        isl, osl = inputs["isl"], inputs["osl"]
        schedule = scheduled(column, inputs)
        slots = xpu_kv_slots(column["ctx"], entry["tuple"][0], isl + osl)
        xpu = schedule_xpu(schedule, column["b"], column["ctx"], isl, osl, slots)
        decode_of = {
            b: ms
            for b, ms in zip(column["b"], column["genonly_ms"], strict=True)
            if ms > 0
        }
        slowdown = np.array([decode_of.get(b, 1.0) for b in column["b"]]) / decode_of[1]

        def metrics(
            attention_ms,
            column=column,
            slowdown=slowdown,
            schedule=schedule,
            xpu=xpu,
            entry=entry,
            isl=isl,
            osl=osl,
        ):
            return compose_aggregated_xpu(
                column["mix_ms"],
                attention_ms,
                column["genonly_ms"],
                slowdown,
                schedule.steps,
                xpu,
                column["b"],
                column["ctx"],
                float(isl),
                float(osl),
                float(entry["layers"]),
                COMPAT.xpu,
            )

        none, one = metrics(np.zeros(slots.size)), metrics(np.ones(slots.size))
        slope = one.ttft_ms - none.ttft_ms
        shares = np.zeros(slots.size)
        for ctx in np.unique(column["ctx"]):
            rows = np.flatnonzero((column["ctx"] == ctx) & (column["b"] > 1))
            # The attention time is one unknown per budget: least relative squares.
            scale = slope[rows] / column["ttft"][rows]
            miss = 1.0 - none.ttft_ms[rows] / column["ttft"][rows]
            shares[rows] = (scale @ miss) / (scale @ scale)
        result = metrics(shares)
        fed = (column["genonly_ms"] > 0) | (xpu.resident < column["b"])
        assert fed.sum() > 0.9 * fed.size
        close(result.ttft_ms[fed], column["ttft"][fed])
        close(result.tpot_ms, column["tpot"])
        recorded = compose_rate(column, schedule, osl)
        close(recorded, column["tokens_s"])


def xpu_kv_slots(ctx, tp, tokens):
    """Recorded memory of the case: what 92 % of 24 GiB leaves for isl + osl tokens."""
    gib = 2**30
    weights_gib, comm_gib, copies = {1: (15.2558, 0.0, 11), 2: (7.6279, 0.334, 6.5)}[tp]
    activations = np.maximum(2 * 4096 * copies * ctx / gib, 70 / 1024)
    room = 24 * 0.92 - weights_gib - comm_gib - 0.48828 - activations
    return np.maximum(1.0, np.floor(room / (147456 / tp * tokens / gib)))


def compose_rate(column, schedule, osl):
    from aisim_jax.kernels import token_rate_per_s

    batch_ms = (
        schedule.steps.mixed_steps * column["mix_ms"]
        + schedule.steps.decode_steps * column["genonly_ms"]
    )
    return token_rate_per_s(
        batch_ms, column["ttft"], column["tpot"], column["b"], osl - 1.0, True
    )


def test_metrics_are_differentiable_in_step_times_and_constants():
    import jax
    import jax.numpy as jnp

    from aisim_jax import precision
    from aisim_jax.kernels import compose_aggregated

    _, entry, column = next(aggregated_tuples("grid_agg_vllm"))
    inputs = {"isl": 4000, "osl": 1000, "backend_name": "vllm"}
    pick = slice(20, 24)
    column = {name: values[pick] for name, values in column.items()}
    schedule = scheduled(column, inputs)

    def objective(mixed_ms, decode_ms, queue):
        steps = jax.tree.map(jnp.asarray, schedule.steps)
        metrics = compose_aggregated(
            mixed_ms,
            decode_ms,
            steps,
            jnp.asarray(column["b"]),
            999.0,
            1.0,
            float(entry["layers"]),
            0.0,
            queue,
        )
        return metrics.ttft_ms.sum() + metrics.tpot_ms.sum()

    with precision():
        arguments = (
            jnp.asarray(column["mix_ms"]),
            jnp.asarray(column["genonly_ms"]),
            policy("vllm").queue._replace(rate_is_capped=True),
        )
        gradient = jax.grad(
            lambda dispatch, mixed, decode: objective(
                mixed,
                decode,
                arguments[2]._replace(dispatch_ms_per_layer=dispatch),
            ),
            argnums=(0, 1, 2),
        )(0.8, *arguments[:2])

        def bumped(step):
            queue = arguments[2]._replace(dispatch_ms_per_layer=0.8 + step)
            return float(objective(*arguments[:2], queue))

        slope = (bumped(1e-4) - bumped(-1e-4)) / 2e-4
        np.testing.assert_allclose(float(gradient[0]), slope, rtol=1e-6)
        assert all(np.all(np.asarray(part) > 0) for part in gradient)


def test_steady_state_is_differentiable_and_equals_the_grid():
    import jax
    import jax.numpy as jnp

    from aisim_jax import precision
    from aisim_jax.models import Layout
    from aisim_jax.recommend import COMPAT, steady_state

    figures, entry, column = next(aggregated_tuples("grid_agg_trtllm_tight"))
    inputs = figures["inputs"]
    place = {
        "isl": inputs["isl"],
        "osl": inputs["osl"],
        "layout": Layout(*entry["tuple"]),
        "layers": entry["layers"],
        "backend": inputs["backend_name"],
    }
    points = column["b"], column["ctx"]
    state = steady_state(column["mix_ms"], column["genonly_ms"], *points, **place)
    close(state.ttft_ms, column["ttft"])
    close(state.tokens_per_s_per_gpu, column["tokens_s"])

    @jax.jit
    def total(scale, divisor):
        queue = COMPAT.trtllm.queue._replace(queue_steps_divisor=divisor)
        parameters = COMPAT._replace(trtllm=COMPAT.trtllm._replace(queue=queue))
        state = steady_state(
            jnp.asarray(column["mix_ms"]) * scale,
            jnp.asarray(column["genonly_ms"]) * scale,
            *points,
            parameters=parameters,
            **place,
        )
        return state.ttft_ms.sum() + state.tpot_ms.sum(), state.tokens_per_s_per_gpu

    with precision():
        slope = jax.grad(lambda *a: total(*a)[0], argnums=(0, 1))(1.0, 20.0)
        for which, step in ((0, 1e-5), (1, 1e-4)):
            up, down = (
                float(
                    total(
                        *(
                            x + sign * step * (i == which)
                            for i, x in enumerate((1.0, 20.0))
                        )
                    )[0]
                )
                for sign in (1, -1)
            )
            difference = (up - down) / (2 * step)
            np.testing.assert_allclose(float(slope[which]), difference, rtol=1e-6)
        slower = np.asarray(total(1.1, 20.0)[1])
    close(slower * 1.1, np.asarray(state.tokens_per_s_per_gpu))
