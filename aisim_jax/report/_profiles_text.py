"""What can be priced, and from which data."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, fields

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from aisim_jax._units import GIB
from aisim_jax.models import BUILT_FAMILIES, ModelSpec
from aisim_jax.systems import ProfileRecord, SystemSpec


def profiles_json(records: Sequence[ProfileRecord]) -> str:
    """All archives as JSON."""
    return json.dumps([asdict(record) for record in records], indent=2)


def profiles_csv(records: Sequence[ProfileRecord]) -> str:
    """One line per archive; tables are separated by spaces."""
    stream = io.StringIO()
    names = [field.name for field in fields(ProfileRecord)]
    writer = csv.DictWriter(stream, names, lineterminator="\n")
    writer.writeheader()
    for record in records:
        writer.writerow({**asdict(record), "tables": " ".join(record.tables)})
    return stream.getvalue()


def profiles_text(records: Sequence[ProfileRecord], models: int) -> RenderableType:
    """Archives as a table, origins below."""
    parts: list[RenderableType] = [profiles_table(records)]
    origins = dict.fromkeys(f"{record.root}: {record.origin}" for record in records)
    parts.extend(Text(f"Measured data of {origin}", style="dim") for origin in origins)
    parts.append(
        Text(
            f"{models} embedded models can be priced (`aisim profiles models`); a local "
            "directory or config.json works too."
        )
    )
    return Group(*parts)


def profiles_table(records: Sequence[ProfileRecord]) -> Table:
    """One line per archive."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    for name in ("system", "engine", "version"):
        table.add_column(name, no_wrap=True)
    for name in ("rows", "MB"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("digest", no_wrap=True)
    table.add_column("GEMM precisions")
    table.add_column("also measured")
    for record in records:
        table.add_row(
            record.system,
            record.backend,
            record.version,
            f"{record.rows:,}",
            f"{record.size_bytes / 1e6:.2f}",
            record.digest.removeprefix("sha256:")[:10],
            " ".join(_gemm_modes(record)),
            " ".join(_kinds(record)),
        )
    return table


def _gemm_modes(record: ProfileRecord) -> list[str]:
    prefix = "gemm/"
    return [
        name.removeprefix(prefix).replace("bfloat16", "bf16")
        for name in record.tables
        if name.startswith(prefix)
    ]


KINDS = {
    "attention": "attention",
    "moe": "moe",
    "mla": "mla",
    "allreduce": "comm",
    "nccl": "comm",
    "scale": "quantize",
}


def _kinds(record: ProfileRecord) -> list[str]:
    """Kinds of operations besides GEMM, each once."""
    return list(
        dict.fromkeys(
            kind
            for name in record.tables
            for word, kind in KINDS.items()
            if word in name
        )
    )


def system_json(spec: SystemSpec, records: Sequence[ProfileRecord]) -> str:
    """Specification and archives of one system as JSON."""
    record = asdict(spec)
    record["nccl_mem_bytes"] = {str(k): v for k, v in spec.nccl_mem_bytes.items()}
    return json.dumps(
        {"spec": record, "tables": [asdict(archive) for archive in records]}, indent=2
    )


def system_text(spec: SystemSpec, records: Sequence[ProfileRecord]) -> RenderableType:
    """Specification of one system in familiar units, its archives below."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    rates = ", ".join(
        f"{name} {rate / 1e12:,.0f}" for name, rate in spec.tensor_flops.items()
    )
    facts = {
        "memory": f"{spec.mem_capacity_bytes / GIB:.1f} GiB",
        "memory bandwidth": f"{spec.mem_bw_bytes_per_s / 1e12:.2f} TB/s "
        f"({spec.mem_bw_efficiency:.0%} reached)",
        "tensor cores, TFLOP/s": rates,
        "GPUs per node": str(spec.gpus_per_node),
        "link inside a node": f"{spec.intra_node_bw_bytes_per_s / 1e9:,.0f} GB/s",
        "link between nodes": f"{spec.inter_node_bw_bytes_per_s / 1e9:,.0f} GB/s",
        "power": f"{spec.power_w:,.0f} W",
    }
    for name, value in facts.items():
        table.add_row(name, value)
    parts: list[RenderableType] = [Text(spec.name, style="bold"), table, Text()]
    if records:
        parts.append(profiles_table(records))
    else:
        parts.append(
            Text("No measured tables; import some with `aisim profiles import`")
        )
    return Group(*parts)


def models_json(specs: Sequence[ModelSpec]) -> str:
    """Embedded models as JSON."""
    return json.dumps([_facts(spec) for spec in specs], indent=2)


def models_text(specs: Sequence[ModelSpec]) -> RenderableType:
    """Models that can be priced, one a line; the others by name."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 0))
    for name in ("model", "family"):
        table.add_column(name, no_wrap=True)
    for name in ("layers", "KV heads", "experts", "context"):
        table.add_column(name, justify="right", no_wrap=True)
    others = []
    for spec in specs:
        if spec.family not in BUILT_FAMILIES:
            others.append(spec.name)
            continue
        table.add_row(
            spec.name,
            spec.family,
            str(spec.layers),
            str(spec.kv_heads),
            str(spec.experts or ""),
            f"{spec.context_length:,}" if spec.context_length else "",
        )
    if not others:
        return table
    known = Text(f"Known, but not priced yet: {', '.join(others)}", style="dim")
    return Group(table, Text(), known)


def _facts(spec: ModelSpec) -> dict[str, object]:
    return {
        "name": spec.name,
        "architecture": spec.architecture,
        "family": spec.family,
        "priced": spec.family in BUILT_FAMILIES,
        "layers": spec.layers,
        "hidden": spec.hidden,
        "heads": spec.heads,
        "kv_heads": spec.kv_heads,
        "experts": spec.experts,
        "context_length": spec.context_length,
    }
