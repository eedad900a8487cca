"""Compiled estimators of many roles: layouts of one model share tables and one batch."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

from .._errors import AisimError
from ..config import ForwardPassConfig
from ..estimators import (
    best_available,
    compile_batch,
    config_layout,
)
from ..models import Layout
from ._op_level_prices import OpLevelPrices


# What tells two layouts or roles of one deployment apart; the rest selects the estimator.
LAYOUT_FIELDS = {
    "worker_type": "aggregated",
    "tp": 1,
    "pp": 1,
    "attention_dp": 1,
    "cp_size": None,
    "moe_tp_size": None,
    "moe_ep_size": None,
    "kv_block_size": None,
}
Family = tuple[ForwardPassConfig, bool]


class EstimatorCache:
    """Least-recently-used prices by engine and layout. Not safe for concurrent writers."""

    def __init__(self, capacity: int = 16) -> None:
        self.capacity = capacity
        self._families: OrderedDict[Family, dict[Layout, OpLevelPrices]] = OrderedDict()

    def prices(
        self, records: Sequence[ForwardPassConfig], *, apart: bool
    ) -> list[OpLevelPrices | AisimError]:
        """Prices of every record, or why it has none; equal layouts share one object.

        apart: requests of a pass are priced one by one.
        """
        groups: dict[Family, list[ForwardPassConfig]] = {}
        for record in records:
            groups.setdefault((_family(record), apart), []).append(record)
        found = {
            family: self._layouts(family, members) for family, members in groups.items()
        }
        return [
            _usable(found[_family(record), apart][config_layout(record)], record)
            for record in records
        ]

    def _layouts(
        self, family: Family, members: Sequence[ForwardPassConfig]
    ) -> dict[Layout, OpLevelPrices | AisimError]:
        known = self._families.setdefault(family, {})
        self._families.move_to_end(family)
        while len(self._families) > self.capacity:
            self._families.popitem(last=False)
        new = {config_layout(m): m for m in members if config_layout(m) not in known}
        failed = _compile(new, known, apart=family[1])
        return {**known, **failed}


def _compile(
    new: Mapping[Layout, ForwardPassConfig],
    known: dict[Layout, OpLevelPrices],
    *,
    apart: bool,
) -> dict[Layout, AisimError]:
    """Add the prices of new layouts to `known`; returns why the others have none.

    The first that can be built opens the tables. Several are compiled in one batch, so
    that they share the arrays and the programs of later calls.
    """
    failed: dict[Layout, AisimError] = {}
    for layout, record in new.items():
        try:
            model = best_available(record)
        except AisimError as error:
            failed[layout] = error
            continue
        batch, layouts = model.batch, [layout]
        if len(new) > len(failed) + 1:
            layouts = [at for at in new if at not in failed]
            batch = compile_batch(
                model.tables,
                model.spec,
                model.precision,
                layouts,
                nextn=model.nextn,
                analytic=model.config.database_mode == "SOL",
                attention_backend=model.config.attention_backend,
            )
        for lane, at in enumerate(layouts):
            known[at] = OpLevelPrices(batch, lane, apart)
        break
    return failed


def _usable(
    prices: OpLevelPrices | AisimError, record: ForwardPassConfig
) -> OpLevelPrices | AisimError:
    """The prices, or why a phase that the role needs has none."""
    if isinstance(prices, AisimError):
        return prices
    lane = prices.batch.lanes[prices.lane]
    needed = {
        "prefill": (lane.context,),
        "decode": (lane.generation,),
        "aggregated": (lane.context, lane.generation),
    }[record.worker_type]
    return next((one for one in needed if isinstance(one, AisimError)), prices)


def _family(record: ForwardPassConfig) -> ForwardPassConfig:
    return record.model_copy(update=LAYOUT_FIELDS)


SHARED = EstimatorCache()
