"""Replay kernels: one scheduler pass, one event, one scenario; arrays in, arrays out.

Each engine loads on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._lazy import lazy_names


if TYPE_CHECKING:
    from ._block_loop import run_blocks as run_blocks
    from ._block_state import BlockLane as BlockLane
    from ._block_state import BlockShape as BlockShape
    from ._counting_loop import run_scenario as run_scenario
    from ._counting_loop import run_scenarios as run_scenarios
    from ._counting_state import LOG_FULL as LOG_FULL
    from ._counting_state import SLOTS_FULL as SLOTS_FULL
    from ._counting_state import STALLED as STALLED
    from ._counting_state import UNPRICED as UNPRICED
    from ._counting_state import CountingShape as CountingShape
    from ._counting_state import Lane as Lane
    from ._counting_state import Limits as Limits
    from ._counting_state import Scenario as Scenario
    from ._counting_state import Traffic as Traffic
    from ._op_level_steps import OpLevelSteps as OpLevelSteps
    from ._price_parts import UNPRICED_NS as UNPRICED_NS
    from ._price_parts import DecodeTable as DecodeTable
    from ._price_parts import FreeWork as FreeWork
    from ._price_parts import PrefillTable as PrefillTable
    from ._price_parts import SurfaceDecode as SurfaceDecode
    from ._price_parts import SurfacePrefill as SurfacePrefill
    from ._radix_loop import RadixAnswer as RadixAnswer
    from ._radix_loop import run_radix as run_radix
    from ._radix_state import RadixEngine as RadixEngine
    from ._radix_state import RadixLane as RadixLane
    from ._radix_state import RadixLoad as RadixLoad
    from ._radix_state import RadixShape as RadixShape
    from ._radix_state import RoleSteps as RoleSteps
    from ._radix_state import SglangLimits as SglangLimits
    from ._radix_state import Transfer as Transfer
    from ._retiming import DecodeWork as DecodeWork
    from ._retiming import FixedPrice as FixedPrice
    from ._retiming import Instants as Instants
    from ._retiming import PolynomialPrice as PolynomialPrice
    from ._retiming import PrefillWork as PrefillWork
    from ._retiming import Price as Price
    from ._retiming import Schedule as Schedule
    from ._retiming import schedule_metrics as schedule_metrics
    from ._timing import DECODE_COEFFICIENTS as DECODE_COEFFICIENTS
    from ._timing import PREFILL_COEFFICIENTS as PREFILL_COEFFICIENTS
    from ._timing import FixedSteps as FixedSteps
    from ._timing import PolynomialSteps as PolynomialSteps
    from ._timing import Steps as Steps
    from ._timing import duration_ns as duration_ns


_HOMES = {
    "BlockLane": "._block_state",
    "BlockShape": "._block_state",
    "CountingShape": "._counting_state",
    "DECODE_COEFFICIENTS": "._timing",
    "DecodeTable": "._price_parts",
    "DecodeWork": "._retiming",
    "FixedPrice": "._retiming",
    "FixedSteps": "._timing",
    "FreeWork": "._price_parts",
    "Instants": "._retiming",
    "LOG_FULL": "._counting_state",
    "Lane": "._counting_state",
    "Limits": "._counting_state",
    "OpLevelSteps": "._op_level_steps",
    "PREFILL_COEFFICIENTS": "._timing",
    "PolynomialPrice": "._retiming",
    "PolynomialSteps": "._timing",
    "PrefillTable": "._price_parts",
    "PrefillWork": "._retiming",
    "Price": "._retiming",
    "RadixAnswer": "._radix_loop",
    "RadixEngine": "._radix_state",
    "RadixLane": "._radix_state",
    "RadixLoad": "._radix_state",
    "RadixShape": "._radix_state",
    "RoleSteps": "._radix_state",
    "SLOTS_FULL": "._counting_state",
    "STALLED": "._counting_state",
    "Scenario": "._counting_state",
    "Schedule": "._retiming",
    "SglangLimits": "._radix_state",
    "Steps": "._timing",
    "SurfaceDecode": "._price_parts",
    "SurfacePrefill": "._price_parts",
    "Traffic": "._counting_state",
    "Transfer": "._radix_state",
    "UNPRICED": "._counting_state",
    "UNPRICED_NS": "._price_parts",
    "duration_ns": "._timing",
    "run_blocks": "._block_loop",
    "run_radix": "._radix_loop",
    "run_scenario": "._counting_loop",
    "run_scenarios": "._counting_loop",
    "schedule_metrics": "._retiming",
}

__getattr__ = lazy_names(__name__, _HOMES)
