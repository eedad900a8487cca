"""Records of a sweep against recorded tables, for the pipeline tests."""

import functools

from recommend_grids import golden


FIELDS = {
    "ttft": "ttft_ms",
    "tpot": "tpot_ms",
    "request_latency": "request_latency_ms",
    "seq/s": "requests_per_s",
    "tokens/s": "tokens_per_s",
    "tokens/s/gpu": "tokens_per_s_per_gpu",
    "tokens/s/user": "tokens_per_s_per_user",
    "tokens/s/gpu_cluster": "cluster_tokens_per_s_per_gpu",
    "concurrency": "concurrency",
    "num_total_gpus": "gpus_per_replica",
    "replicas_needed": "replicas",
    "total_gpus_needed": "gpus_used",
}
RELATIVE = 1e-3


@functools.cache
def swept(name, mode="compat", systems_paths=()):
    """Result of the recorded question `name`."""
    from aisim_jax.recommend import sweep

    inputs = golden(name)["inputs"]
    return sweep(
        inputs["model_path"],
        inputs["system"],
        inputs.get("backend", "trtllm"),
        gpus=inputs.get("total_gpus"),
        isl=inputs["isl"],
        osl=inputs["osl"],
        ttft_ms=float(inputs.get("ttft", 2000.0)),
        tpot_ms=float(inputs.get("tpot", 30.0)),
        request_latency_ms=inputs.get("request_latency"),
        target_request_rate=inputs.get("target_request_rate"),
        top_n=inputs.get("top_n", 5),
        systems_paths=systems_paths,
        mode=mode,
    )


def chosen(result):
    """The chosen deployment; there has to be one."""
    assert result.chosen is not None
    return result.chosen


def recorded_key(row):
    if "parallel" in row:
        return (row["backend"], row["parallel"], row["bs"], row["ctx_tokens"])
    return (
        row["(p)backend"],
        *(row[f"({role}){name}"] for role in "pd" for name in ("parallel", "bs")),
        row["(p)workers"],
        row["(d)workers"],
    )


def our_key(record):
    if len(record.workers) == 1:
        worker = record.workers[0]
        return (
            record.backend,
            worker.parallel.label,
            worker.batch,
            worker.context_budget_tokens,
        )
    return (
        record.backend,
        *(part for w in record.workers for part in (w.parallel.label, w.batch)),
        *(w.workers for w in record.workers),
    )


def check_records(records, table):
    """The records are the recorded rows (as sets), figure by figure."""
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
    expected = {recorded_key(row): row for row in rows}
    found = {our_key(record): record for record in records}
    assert found.keys() == expected.keys()
    for key, row in expected.items():
        record = found[key]
        for name, field in FIELDS.items():
            if name in row:
                value = getattr(record, field)
                assert abs(value - row[name]) <= RELATIVE * abs(row[name]), (key, name)
        memory = row["memory"] if "memory" in row else row["(p)memory"]
        worker = record.workers[0]
        assert abs(worker.memory_gib - memory) <= RELATIVE * memory


def check_sweep(result, figures, modes):
    """Chosen mode, top rows, frontier and candidate counts are the recorded ones.

    `modes` maps recorded experiment names to our serving modes.
    """
    for name, mode in modes.items():
        for kind, records in (("top", result.best), ("pareto", result.pareto)):
            if name in figures[kind]:
                check_records(records(mode), figures[kind][name])
    assert chosen(result).serving_mode == modes[figures["chosen"]]
    kept = {(c["mode"], c["backend"]): c["rows_kept"] for c in figures["candidates"]}
    ours = {
        (e.question.serving_mode, e.question.backend): e.ranked.candidates.size
        for e in result.experiments
    }
    assert ours == kept
