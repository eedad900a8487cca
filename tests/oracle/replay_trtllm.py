"""The TensorRT-LLM scheduler of one rank: no request starts that might be evicted."""

from __future__ import annotations

from .replay_inputs import Request
from .replay_pool import Block
from .replay_vllm import Sequence, VllmScheduler, ceil_div


class TrtllmScheduler(VllmScheduler):
    """Admission counts every block up to completion; whole prompts may be cached."""

    full_hits = True

    def output_limit(self, request: Request) -> int:
        engine, osl = self.engine, super().output_limit(request)
        tokens = engine.num_blocks * engine.block_size
        if request.isl < tokens:
            osl = min(osl, tokens - request.isl)
        if engine.max_model_len is not None:
            osl = min(osl, max(0, engine.max_model_len - request.isl))
        return osl

    def demand(self, seq: Sequence) -> int:
        return ceil_div(seq.isl + seq.osl, self.engine.block_size)

    def too_large(self, seq: Sequence) -> bool:
        return self.demand(seq) > self.engine.num_blocks

    def room(self) -> int:
        activated = [seq for seq in self.waiting if seq.built]
        promised = [*self.running, *self.reserved.values(), *activated]
        missing = sum(self.demand(seq) - len(seq.blocks) for seq in promised)
        return super().room() - missing

    def resident(self, seq: Sequence) -> list[Block]:
        return []

    def destination_fits(self, seq: Sequence) -> bool:
        return self.demand(seq) <= self.room()
