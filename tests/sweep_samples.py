"""A sweep report built from recorded figures, for the tests of tables and pages."""

from goldens import load_golden


RECORDED = load_golden("report/sweep.json")


def sweep_report(**changes):
    from aisim_jax.report import SweepReport

    inputs = RECORDED["inputs"]
    fields = {
        "model": inputs["model_path"],
        "question": {
            "model": inputs["model_path"],
            "isl": inputs["isl"],
            "osl": inputs["osl"],
            "ttft_ms": inputs["ttft"],
            "tpot_ms": inputs["tpot"],
            "gpus": inputs["total_gpus"],
        },
        "chosen": rows(RECORDED["chosen"], "top")[0],
        "best": {mode: rows(mode, "top") for mode in ("agg", "disagg")},
        "pareto": {mode: rows(mode, "pareto") for mode in ("agg", "disagg")},
        "counts": {
            "agg": {"meets": 3000, "memory": 2400, "ttft": 600, "tpot": 3000},
            "disagg": {"meets": 40, "tpot": 960},
        },
        "failures": {},
        "origins": ("h200_sxm, vllm 0.24.0: measured tables",),
    }
    return SweepReport(**{**fields, **changes})


def rows(mode, kind):
    table = RECORDED[kind][mode]
    named = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
    return tuple(deployment(mode, row) for row in named)


def deployment(mode, row):
    from aisim_jax.recommend import DeploymentRecord

    prefixes = {"agg": [("", "agg")], "disagg": [("(p)", "prefill"), ("(d)", "decode")]}
    gpus = row["num_total_gpus"]
    return DeploymentRecord(
        model=RECORDED["inputs"]["model_path"],
        serving_mode=mode,
        backend="vllm",
        version="0.24.0",
        workers=tuple(worker(row, *pair) for pair in prefixes[mode]),
        ttft_ms=float(row["ttft"]),
        tpot_ms=float(row["tpot"]),
        request_latency_ms=float(row["request_latency"]),
        tokens_per_s_per_user=float(row["tokens/s/user"]),
        tokens_per_s_per_gpu=float(row["tokens/s/gpu"]),
        cluster_tokens_per_s_per_gpu=float(row["tokens/s/gpu_cluster"]),
        tokens_per_s=float(row["tokens/s"]),
        requests_per_s=float(row["seq/s"]),
        concurrency=float(row["concurrency"]),
        gpus_per_replica=gpus,
        replicas=RECORDED["inputs"]["total_gpus"] // gpus,
        kv_precision="fp8",
        meets_targets=True,
    )


def worker(row, prefix, role):
    from aisim_jax.recommend import WorkerRecord

    return WorkerRecord(
        role=role,
        workers=row.get(f"{prefix}workers", 1),
        tp=row[f"{prefix}tp"],
        pp=1,
        dp=row[f"{prefix}dp"],
        moe_tp=row[f"{prefix}moe_tp"],
        moe_ep=row[f"{prefix}moe_ep"],
        cp=1,
        batch=row[f"{prefix}bs"],
        context_budget_tokens=row.get("ctx_tokens", 0),
        memory_gib=float(row[f"{prefix}memory"]),
        requests_per_s=float(row.get(f"{prefix}seq/s/worker", row["seq/s"])),
        system=row[f"{prefix}system"],
        backend="vllm",
        version="0.24.0",
    )
