"""What must hold for any deployment: nothing exceeds the device, wider never holds less."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from aisim_jax._errors import NoKvBudgetError
from aisim_jax.memory import estimate_kv_cache, kv_curve
from aisim_jax.models import load_model


DENSE = ("meta-llama/Meta-Llama-3.1-8B", "Qwen/Qwen3-32B", "Qwen/Qwen3-32B-FP8")
KINDS = {"vllm": "of_total", "sglang": "of_total", "trtllm": "of_free"}

models = st.sampled_from(DENSE)
systems = st.sampled_from(("h100_sxm", "h200_sxm", "b200_sxm"))
backends = st.sampled_from(tuple(KINDS))
widths = st.sampled_from((1, 2, 4, 8))
fractions = st.floats(0.0, 1.0)
step_tokens = st.integers(0, 65536)
graph_bytes = st.integers(0, 4 * 2**30)


def _capacity(model, system, backend, tp, fraction, tokens, graphs=0):
    try:
        return estimate_kv_cache(
            model,
            system,
            backend,
            max_num_tokens=tokens,
            max_batch_size=1,
            memory_fraction_kind=KINDS[backend],
            memory_fraction_value=fraction,
            tp_size=tp,
            cuda_graph_reserved_bytes=graphs,
        )
    except NoKvBudgetError:
        return None


def _tokens(*question):
    capacity = _capacity(*question)
    return 0 if capacity is None else capacity.total_kv_size_tokens


@settings(deadline=None, max_examples=60)
@given(models, systems, widths, fractions, step_tokens, graph_bytes)
def test_cache_and_loads_stay_within_the_vllm_budget(
    model, system, tp, fraction, tokens, graphs
):
    found = _capacity(model, system, "vllm", tp, fraction, tokens, graphs)
    if found is None:
        return
    cache = found.total_kv_size_tokens * found.kv_size_per_token_bytes
    assert found.memory_breakdown is not None
    loads = sum(found.memory_breakdown.as_dict().values())
    assert cache + loads <= fraction * found.total_gpu_capacity_bytes


@settings(deadline=None, max_examples=60)
@given(models, systems, backends, widths, fractions, step_tokens)
def test_cache_never_exceeds_the_device(model, system, backend, tp, fraction, tokens):
    found = _capacity(model, system, backend, tp, fraction, tokens)
    if found is None:
        return
    cache = found.total_kv_size_tokens * found.kv_size_per_token_bytes
    assert cache <= found.total_kv_size_bytes <= found.total_gpu_capacity_bytes


@settings(deadline=None, max_examples=40)
@given(models, systems, backends, st.sampled_from((1, 2, 4)), fractions, step_tokens)
def test_wider_tensor_parallelism_never_holds_fewer_tokens(
    model, system, backend, tp, fraction, tokens
):
    narrow = _tokens(model, system, backend, tp, fraction, tokens)
    assert narrow <= _tokens(model, system, backend, 2 * tp, fraction, tokens)


@settings(deadline=None, max_examples=40)
@given(models, systems, backends, widths, fractions, fractions, step_tokens)
def test_larger_fraction_never_holds_fewer_tokens(
    model, system, backend, tp, one, other, tokens
):
    low, high = sorted((one, other))
    question = (model, system, backend, tp)
    assert _tokens(*question, low, tokens) <= _tokens(*question, high, tokens)


@settings(deadline=None, max_examples=40)
@given(models, widths, st.integers(0, 10**6), st.integers(0, 10**6))
def test_longer_requests_never_need_fewer_bytes(model, tp, one, other):
    curve = kv_curve(load_model(model), "fp8", tp, "vllm")
    short, long = sorted((one, other))
    assert curve.sequence_bytes(short) <= curve.sequence_bytes(long)


@settings(deadline=None, max_examples=60)
@given(models, widths, st.floats(0, 1e12))
def test_inverse_of_the_length_curve_is_the_largest_length_that_fits(model, tp, budget):
    curve = kv_curve(load_model(model), "bfloat16", tp, "vllm")
    tokens = curve.max_tokens(budget)
    assert curve.sequence_bytes(tokens) <= budget < curve.sequence_bytes(tokens + 1)
