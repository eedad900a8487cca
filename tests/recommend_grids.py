"""Recorded grids as columns, for the tests of the recommendation formulas."""

import numpy as np
from goldens import load_golden


AGGREGATED = ("grid_agg_vllm", "grid_agg_trtllm_tight", "grid_agg_sglang_chunked")
DISAGGREGATED = ("grid_disagg_sglang", "grid_disagg_trtllm")
FULL_DUMPS = {
    "grid_agg_vllm": "sweep_qwen3_32b_fp8_h200_vllm",
    "grid_agg_trtllm_tight": "sweep_qwen3_32b_fp8_h200_trtllm",
}


def golden(name):
    return load_golden(f"recommend/{name}.json")


def columns(table):
    return {
        name: np.array([row[i] for row in table["rows"]])
        for i, name in enumerate(table["columns"])
    }


def aggregated_tuples(name):
    """Yield (figures, tuple entry, float columns) of every recorded layout."""
    figures = golden(name)
    for entry in figures["tuples"]:
        table = {"columns": figures["columns"], "rows": entry["rows"]}
        yield figures, entry, {k: v.astype(float) for k, v in columns(table).items()}


def role_rows(table):
    from aisim_jax.recommend._disaggregation import RoleRows

    column = columns(table)
    return RoleRows(
        label=tuple(column["parallel"].tolist()),
        gpus=column["num_total_gpus"].astype(np.int64),
        concurrency=column["global_bs"].astype(float),
        ttft_ms=column["ttft"].astype(float),
        tpot_ms=column["tpot"].astype(float),
        requests_per_s=column["seq/s"].astype(float),
        requests_per_s_per_gpu=column["seq/s/gpu"].astype(float),
    )
