"""The operation-level estimator of one worker behind the consumers' calls."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from .._errors import AisimError, InvalidInputError, UnsupportedError
from ..config import ForwardPassConfig
from ..kernels import MixedWork, planned_work, scheduled_work
from ..models import Layout, ModelSpec, Precision
from ..systems import PerfTables
from ._batch import OpLevelBatch, compile_batch
from ._breakdown import OperationPrice, Query, price_entries
from ._components import REQUESTS, ROWS, TOKENS, HardwareSurface, hardware_surface
from ._iteration import U32, Scheduled, parse_iteration, scheduled_arrays
from ._plain import PLAIN
from ._scalar import ScalarSteps
from ._surface import OpLevelSurface


class OpLevelModel:
    """Forward-pass times of one worker from measured operation tables.

    Scalar calls answer in microseconds without array dispatch; `time_ms_batch` prices
    arrays of iterations; `surface` is the differentiable pytree. All three read the same
    prepared arrays. Times are ms; None or NaN means that no table answers.
    """

    def __init__(
        self,
        config: ForwardPassConfig,
        spec: ModelSpec,
        precision: Precision,
        tables: PerfTables,
        layout: Layout,
        nextn: int,
        selection_failures: tuple[str, ...] = (),
    ) -> None:
        self.config = config
        self.spec = spec
        self.precision = precision
        self.layout = layout
        self.nextn = nextn
        self.selection_failures = selection_failures
        self.batch: OpLevelBatch = compile_batch(
            tables,
            spec,
            precision,
            [layout],
            nextn=nextn,
            analytic=config.database_mode == "SOL",
            attention_backend=config.attention_backend,
        )
        lane = self.batch.lanes[0]
        if isinstance(lane.context, AisimError) and isinstance(
            lane.generation, AisimError
        ):
            raise lane.context
        self._refresh()

    def _refresh(self) -> None:
        self._scalar = ScalarSteps(
            self.batch.host,
            self.batch.phases,
            0,
            analytic=self.batch.pricer.analytic,
        )
        self._widths = self.batch.widths

    def _covered(self, context: int, generation: int, logits: int) -> ScalarSteps:
        widths = self._widths
        if (
            context >= widths.context
            or generation >= widths.generation
            or logits >= widths.logits
        ):
            self.batch.ensure(context, generation, logits)
            self._refresh()
        return self._scalar

    @property
    def ready(self) -> bool:
        """Whether estimates can be made (always, once constructed)."""
        return True

    @property
    def tables(self) -> PerfTables:
        """The measured tables in use."""
        return self.batch.pricer.tables

    def diagnostics(self) -> dict[str, Any]:
        """Source, readiness and provenance of the estimates."""
        tables = self.tables
        return {
            "source": "op_level",
            "readiness": "ready",
            "retained_observations": 0,
            "correction_ready_buckets": 0,
            "last_warning": next(reversed(self.batch.pricer.cautions), None),
            "provenance": {
                "config": self.config.model_dump(mode="json"),
                "requested_estimation_mode": self.config.estimation_mode,
                "selected_estimation_mode": "op_level",
                "selected_systems_root": tables.root,
                "selection_failures": list(self.selection_failures),
                "data": {
                    "system": tables.spec.name,
                    "backend": tables.backend,
                    "version": tables.version,
                    "digest": tables.digest,
                },
                "precision": {
                    "gemm": self.precision.gemm,
                    "moe": self.precision.moe,
                    "kv": self.precision.kv,
                    "fmha": self.precision.fmha,
                    "comm": self.precision.comm,
                },
            },
        }

    def predict_prefill_latency_total(
        self, batch: int, new_tokens: int, kv_tokens: int
    ) -> float | None:
        """Prefill of `batch` requests from sums of new and cached tokens, ms.

        Each request is priced at a length of floor((new + cached) / batch) tokens of
        which floor(cached / batch) are cached; no new tokens take no time.
        """
        _check_counts(batch=batch, new_tokens=new_tokens, kv_tokens=kv_tokens)
        if new_tokens == 0:
            return 0.0
        if new_tokens < batch or batch == 0:
            raise InvalidInputError(
                f"new_tokens: {new_tokens} cannot be shared by {batch} prefill requests; "
                "send at least one request and one new token for each"
            )
        prefix = kv_tokens // batch
        isl = (new_tokens + kv_tokens) // batch
        steps = self._covered(batch * (isl - prefix), 1, batch)
        return _answer(steps.prefill_ms(batch, isl, prefix))

    def predict_decode_latency_total(self, batch: int, kv_tokens: int) -> float | None:
        """One decode step of `batch` requests that hold kv_tokens in all, ms."""
        _check_counts(batch=batch, kv_tokens=kv_tokens)
        if batch == 0 and kv_tokens == 0:
            return 0.0
        if batch == 0:
            raise InvalidInputError(
                f"batch: no decode request holds the {kv_tokens} cached tokens; send the "
                "number of requests"
            )
        return _answer(self._covered(1, batch, 1).decode_ms(batch, kv_tokens // batch))

    def decode_step_ms(self, requests: int, kv_len: int) -> float | None:
        """One decode step at KV length kv_len, draft rows included; ms."""
        _check_counts(requests=requests, kv_len=kv_len)
        rows = requests * (self.nextn + 1)
        return _answer(self._covered(1, rows, 1).decode_ms(rows, kv_len))

    def mixed_step_parts_ms(
        self, context_tokens: int, requests: int, isl: int, osl: int, prefix: int = 0
    ) -> tuple[float, float, float]:
        """The three parts of a scheduler step (token work, prefill, decode), ms."""
        _check_counts(
            context_tokens=context_tokens,
            requests=requests,
            isl=isl,
            osl=osl,
            prefix=prefix,
        )
        if isl == 0:
            raise InvalidInputError("isl: a prompt of 0 tokens; send isl >= 1")
        rows = requests * (self.nextn + 1)
        work = planned_work(PLAIN, context_tokens, rows, isl, osl, prefix)
        return self._covered(int(work.tokens), rows, 2).mixed_parts_ms(work)

    def estimate_forward_pass_time_ms(self, iteration: Any) -> float | None:
        """Time of one engine iteration, ms: the slowest rank; 0 for no work.

        `iteration` is a list of rank records or one record (see consumers' record).
        None where no table answers.
        """
        slowest = 0.0
        for rank in parse_iteration(iteration):
            value = self._rank_ms(rank)
            if value != value:
                return None
            slowest = max(slowest, value)
        return slowest

    def _rank_ms(self, rank: Scheduled) -> float:
        if rank.new > 0:
            if rank.decodes > 0 or rank.kv > 0:
                work = scheduled_work(PLAIN, *rank)
                steps = self._covered(int(work.tokens), int(work.rows), 2)
                return sum(steps.mixed_parts_ms(work))
            n = max(rank.requests, 1)
            held = rank.cached // n
            new = rank.new // n
            return self._covered(n * new, 1, n).prefill_ms(n, new + held, held)
        if rank.decodes > 0 or rank.kv > 0:
            rows = max(rank.decodes, 1)
            return self._covered(1, rows, 1).decode_ms(rows, rank.kv // rows)
        return 0.0

    def time_ms_batch(self, scheduled: Any) -> Float[np.ndarray, " n"]:
        """Times of n iterations, ms; NaN where no table answers.

        `scheduled` is a struct of arrays [n, ranks] (or [n]) of the seven counters of
        the consumers' record: a mapping, a structured array, or attributes.
        """
        counters = scheduled_arrays(scheduled)
        n, ranks = counters[0].shape
        flat = [c.reshape(-1) for c in counters]
        each = self.batch.scheduled_ms(np.zeros(n * ranks, np.int64), *flat)
        return each.reshape(n, ranks).max(axis=1)

    def estimate_forward_pass_detailed(self, iteration: Any) -> dict[str, Any]:
        """The slowest rank's time by operation, with the origin of every figure.

        Returns total_ms, rank (index of the slowest), operations (name, ms, origin) and
        data. Raises MissingPerfDataError naming the operation that no table serves.
        """
        ranks = parse_iteration(iteration)
        priced = [self._rank_operations(rank) for rank in ranks]
        totals = [sum(op.ms for op in ops) for ops in priced]
        slowest = int(np.argmax(totals)) if totals else 0
        return {
            "total_ms": totals[slowest] if totals else 0.0,
            "rank": slowest,
            "operations": [
                {"name": op.name, "ms": op.ms, "origin": op.origin}
                for op in (priced[slowest] if priced else [])
            ],
            "data": self.diagnostics()["provenance"]["data"],
        }

    def _rank_operations(self, rank: Scheduled) -> list[OperationPrice]:
        if rank.new > 0 and (rank.decodes > 0 or rank.kv > 0):
            return self.mixed_operations(scheduled_work(PLAIN, *rank))
        if rank.new > 0:
            n = max(rank.requests, 1)
            return self.prefill_operations(
                n, (rank.new // n) + rank.cached // n, rank.cached // n
            )
        if rank.decodes > 0 or rank.kv > 0:
            rows = max(rank.decodes, 1)
            return self.decode_operations(rows, rank.kv // rows)
        return []

    def prefill_operations(
        self, batch: int, isl: int, prefix: int = 0
    ) -> list[OperationPrice]:
        """Breakdown of a prefill of `batch` requests of isl tokens."""
        new = isl - prefix
        if new <= 0:
            raise InvalidInputError(
                f"prefix {prefix} leaves no new token of isl {isl}; use prefix < isl"
            )
        return self._entries("context", Query(batch * new, batch, batch, new, prefix))

    def decode_operations(self, rows: int, kv_len: int) -> list[OperationPrice]:
        """Breakdown of one decode step of `rows` rows at KV length kv_len."""
        return self._entries(
            "generation", Query(rows, rows, rows, new=1, kv_len=kv_len)
        )

    def mixed_operations(self, work: MixedWork) -> list[OperationPrice]:
        """Breakdown of a mixed step: token work, then the two attention parts."""
        tokens = int(work.tokens)
        query = Query(tokens, 1, 1, tokens, int(work.prefix))
        out = self._entries("context", query, apart=False)
        if work.batch > 0:
            query = Query(1, 1, int(work.batch), int(work.new), int(work.cached))
            out += [
                OperationPrice(op.name, op.ms / work.passes, op.origin)
                for op in self._entries("context", query, apart=True)
            ]
        if work.rows > 0:
            query = Query(1, 1, int(work.rows), 1, kv_len=int(work.kv_len))
            out += self._entries("generation", query, apart=True)
        return out

    def _entries(
        self, phase: str, query: Query, apart: bool | None = None
    ) -> list[OperationPrice]:
        entries = getattr(self.batch.lanes[0], phase)
        if isinstance(entries, AisimError):
            raise entries
        if apart is not None:
            entries = [entry for entry in entries if entry.apart == apart]
        return price_entries(self.batch.pricer, entries, query)

    def surface(self, *, hold: bool = True) -> OpLevelSurface:
        """The compiled arrays as a pytree module (lane 0)."""
        return self.batch.surface(hold=hold)

    def hardware_surface(
        self, *, tokens: int = TOKENS, rows: int = ROWS, requests: int = REQUESTS
    ) -> HardwareSurface:
        """This worker as a differentiable function of hardware rates (lane 0)."""
        return hardware_surface(self.batch, tokens=tokens, rows=rows, requests=requests)

    def tune_with_fpms(self, iterations: Any) -> None:
        """Refused: this estimator has no correction yet."""
        del iterations
        raise UnsupportedError(
            "op_level: online correction is not built; use estimates as they are"
        )

    def close(self) -> None:
        """Nothing to release; present for callers that close every estimator."""

    def __enter__(self) -> OpLevelModel:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _answer(value: float) -> float | None:
    return None if value != value else value


def _check_counts(**counts: int) -> None:
    for name, count in counts.items():
        if not (0 <= count <= U32 and count == int(count)):
            raise InvalidInputError(
                f"{name}: {count} is not a whole count between 0 and {U32}"
            )


def config_layout(record: ForwardPassConfig) -> Layout:
    """Parallel sizes of a canonical record."""
    return Layout(
        tp=record.tp,
        pp=record.pp,
        dp=record.attention_dp,
        moe_tp=record.moe_tp_size or 1,
        moe_ep=record.moe_ep_size or 1,
        cp=record.cp_size or 1,
    )
