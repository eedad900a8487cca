"""The block engine on recorded cases, with the oracle's answer to compare with."""

from __future__ import annotations

import pytest
from oracle.replay_oracle import replay
from replay_golden import load_case, scenario
from replay_records import deployment_of, unlike, workload_of


# One of each mechanism; the prediction tests run them all.
CASES = [
    "a16_zero_times",
    "a18_ties",
    "c03_preempt_chunk",
    "d07_tree_evict",
    "d12_sessions_groups",
    "e02_ctx_reject",
    "f04_dp4_interval",
    "g05_trace_cap",
    "h04_2p2d_tree",
    "h05_decode_pressure",
    "h07_prefill_default_seq",
    "h09_ties",
    "h10_zero_prefill",
    "i02_trt_pressure",
    "i05_trt_1p1d",
    "k03_tokenization",
]


@pytest.mark.parametrize("name", CASES)
def test_a_recorded_case_is_reproduced_bit_for_bit(name: str) -> None:
    from aisim_jax.replay._block_engine import replay_blocks

    case = load_case(name)
    inputs, _ = scenario(case)
    (found,) = replay_blocks([(workload_of(inputs), deployment_of(inputs))], log=True)
    assert not unlike(found, replay(inputs))
    summary = case["summary"]
    assert found.committed_prefill_tokens == summary["committed_prefill_tokens"]
    events = case.get("kv_cache_events")
    if events:
        assert found.telemetry["stored_blocks"] == events["blocks_stored"]
        assert found.telemetry["evicted_blocks"] == events["blocks_removed"]
