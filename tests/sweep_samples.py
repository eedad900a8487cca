"""A sweep report built from recorded figures, for the tests of tables and files."""

from goldens import load_golden


RECORDED = load_golden("report/sweep.json")


def sweep_report(**changes):
    from aisim_jax.report import ExperimentReport, SweepReport

    inputs = RECORDED["inputs"]
    question = {
        "model": inputs["model_path"],
        "isl": inputs["isl"],
        "osl": inputs["osl"],
        "ttft_ms": inputs["ttft"],
        "tpot_ms": inputs["tpot"],
        "gpus": inputs["total_gpus"],
    }
    experiments = [
        ExperimentReport(
            name=mode,
            model=question["model"],
            serving_mode=mode,
            backend="vllm",
            system="h200_sxm",
            version="0.24.0",
            evaluated=5000,
            lost={"memory": 1200, "ttft": 300, "tpot": 2000},
            best=rows(mode, "top"),
            pareto=rows(mode, "pareto"),
            origin="h200_sxm, vllm 0.24.0, measured tables",
        )
        for mode in ("agg", "disagg")
    ]
    chosen = next(e for e in experiments if e.name == RECORDED["chosen"]).best[0]
    fields = {
        "question": question,
        "experiments": tuple(experiments),
        "chosen": chosen,
        **changes,
    }
    return SweepReport(**fields)


def rows(mode, kind):
    table = RECORDED[kind][mode]
    named = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
    return tuple(deployment(mode, row) for row in named)


def deployment(mode, row):
    from aisim_jax.report import DeploymentRow

    prefixes = {"agg": [("", "agg")], "disagg": [("(p)", "prefill"), ("(d)", "decode")]}
    gpus = row["num_total_gpus"]
    return DeploymentRow(
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
        requests_per_s=float(row["seq/s"]),
        concurrency=float(row["concurrency"]),
        gpus_per_replica=gpus,
        replicas=RECORDED["inputs"]["total_gpus"] // gpus,
        kv_precision="fp8",
    )


def worker(row, prefix, role):
    from aisim_jax.report import WorkerRow

    return WorkerRow(
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
        system=row[f"{prefix}system"],
    )
