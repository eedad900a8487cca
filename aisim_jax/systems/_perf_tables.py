"""The measured tables of one system x backend x version, decoded when first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ._archive import read_meta, read_table
from ._blocks import (
    Block,
    attention_tables,
    bmm_table,
    comm_table,
    gemm_table,
    mla_tables,
    moe_tables,
    quantize_table,
)
from ._cautions import gemm_cautions
from ._lanes import lane_order
from ._spec import SystemSpec
from ._tables import (
    AttentionTables,
    BmmTable,
    CommTable,
    GemmTable,
    MlaKey,
    MoeTables,
    QuantizeTable,
    RaggedGrid,
)


BMM_OPERATIONS = {True: "mla_gen_pre", False: "mla_gen_post"}


class PerfTables:
    """Tables of one archive. Arrays are shared and read-only.

    `sources[code]` names the data version behind an origin code; code 0 is the
    version's own data (for NCCL: the NCCL version that the system names).
    """

    def __init__(self, path: Path, spec: SystemSpec, root: str) -> None:
        self.path = path
        self.spec = spec
        self.root = root
        self.meta: Mapping[str, Any] = read_meta(path)
        self.backend: str = self.meta["backend"]
        self.version: str = self.meta["version"]
        self.sources: tuple[str, ...] = tuple(self.meta["sources"])
        self.digest: str = self.meta["digest"]
        self._decoded: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"PerfTables({self.spec.name}, {self.backend} {self.version})"

    def table_sources(self, name: str) -> tuple[str, ...]:
        """Data versions that were read for table `name`, first served first."""
        return tuple(self.meta["tables"][name]["sources"])

    def gemm_modes(self) -> tuple[str, ...]:
        """Precisions that have a GEMM table, in load order."""
        return tuple(self.meta["gemm_modes"])

    def gemm(self, quant: str) -> GemmTable | None:
        """GEMM curves of one precision, None when it was not measured."""
        return self._single(f"gemm/{quant}", (quant,), gemm_table)

    def gemm_cautions(self, quant: str) -> tuple[str, ...]:
        """Known defects of the GEMM figures of one precision, as sentences."""
        return gemm_cautions(self.backend, self.version, quant, self.gemm(quant))

    def context_attention(self) -> AttentionTables:
        """Prefill attention by lane and slice, lanes in load order."""
        return self._whole("context_attention", attention_tables)

    def generation_attention(self) -> AttentionTables:
        """Decode attention by lane and slice, lanes in load order."""
        return self._whole("generation_attention", attention_tables)

    def moe(self) -> MoeTables:
        """Expert curves by (precision, distribution)."""
        return self._whole("moe", moe_tables)

    def moe_low_latency(self) -> MoeTables:
        """Expert curves of the low-latency kernels by (precision, distribution)."""
        return self._whole("moe_low_latency", moe_tables)

    def allreduce(self) -> CommTable | None:
        """The framework's own all-reduce; sizes in elements."""
        return self._single("allreduce", (), comm_table)

    def nccl(self, operation: str, dtype: str) -> CommTable | None:
        """all_gather, all_reduce, reduce_scatter or alltoall; sizes in elements."""
        return self._single("nccl", (operation, dtype), comm_table)

    def context_mla(self) -> Mapping[MlaKey, RaggedGrid]:
        """Latent-attention prefill kernels."""
        return self._whole("context_mla", mla_tables)

    def generation_mla(self) -> Mapping[MlaKey, RaggedGrid]:
        """Latent-attention decode kernels."""
        return self._whole("generation_mla", mla_tables)

    def context_mla_module(self) -> Mapping[MlaKey, RaggedGrid]:
        """Whole latent-attention blocks in prefill, projections included."""
        return self._whole("context_mla_module", mla_tables)

    def generation_mla_module(self) -> Mapping[MlaKey, RaggedGrid]:
        """Whole latent-attention blocks in decode, projections included."""
        return self._whole("generation_mla_module", mla_tables)

    def bmm(self, quant: str, pre: bool) -> BmmTable | None:
        """Batched matmul before (`pre`) or after latent decode attention."""
        return self._single("mla_bmm", (quant, BMM_OPERATIONS[pre]), bmm_table)

    def compute_scale(self) -> QuantizeTable | None:
        """Dynamic scale computation minus static quantisation, precision fp8."""
        return self._single("compute_scale", ("fp8",), quantize_table)

    def scale_matrix(self) -> QuantizeTable | None:
        """Static quantisation of an activation, precision fp8."""
        return self._single("scale_matrix", ("fp8",), quantize_table)

    def lane_order(
        self,
        phase: str,
        attention_backend: str | None = None,
        architecture: str | None = None,
    ) -> tuple[str, ...]:
        """Attention lanes in serving order; phase "context" or "generation"."""
        lanes = self.meta["lanes"]
        return lane_order(self.backend, lanes, phase, attention_backend, architecture)

    def _blocks(self, name: str) -> list[Block]:
        if name not in self.meta["tables"]:
            return []
        return read_table(self.path, name)

    def _whole(self, name: str, build: Any) -> Any:
        if name not in self._decoded:
            self._decoded[name] = build(self._blocks(name))
        return self._decoded[name]

    def _single(self, name: str, key: tuple[str, ...], make: Any) -> Any:
        if name not in self._decoded:
            blocks = self._blocks(name)
            self._decoded[name] = {block.key: make(block) for block in blocks}
        return self._decoded[name].get(key)
