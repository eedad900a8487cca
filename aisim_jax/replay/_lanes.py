"""Running one-lane programs over many lanes: in turn on a CPU, side by side on devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec


# Lanes of one launch: bounds the memory of a batch, whatever its size.
LANES_PER_LAUNCH = 4096


def shared_bytes(tree: Any) -> int:
    """Size of a pytree's arrays."""
    return sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(tree))


def lane_runner(
    one: Callable[[Any], Any], many: Callable[[Any], Any] | None = None
) -> Callable[[Sequence[Any]], list[Any]]:
    """A function from lanes (equal pytrees of NumPy leaves) to their NumPy answers.

    `one` maps a lane to a pytree of arrays; lanes run in turn, or, where `many` is given
    (leaves lead with lanes), side by side. A leaf that all lanes share (the same object)
    is passed once. The batch is cut into launches and, with several local devices, spread
    over them; each lane's arithmetic is the same in every arrangement.
    """
    programs: dict[Any, Callable[..., Any]] = {}

    def run(lanes: Sequence[Any]) -> list[Any]:
        answers: list[Any] = []
        for start in range(0, len(lanes), LANES_PER_LAUNCH):
            answers += launch(lanes[start : start + LANES_PER_LAUNCH])
        return answers

    def launch(lanes: Sequence[Any]) -> list[Any]:
        flat = [jax.tree.flatten(lane) for lane in lanes]
        tree = flat[0][1]
        columns = list(zip(*(leaves for leaves, _ in flat), strict=True))
        alike = tuple(all(leaf is column[0] for leaf in column) for column in columns)
        devices = jax.local_device_count()
        room = 1 << max(len(lanes) - 1, 0).bit_length()
        room = -(-room // devices) * devices
        common = [
            column[0] for column, one_ in zip(columns, alike, strict=True) if one_
        ]
        each = [
            np.stack([np.asarray(leaf) for leaf in column])
            for column, one_ in zip(columns, alike, strict=True)
            if not one_
        ]
        each = [
            np.concatenate([leaf, np.repeat(leaf[:1], room - len(lanes), 0)])
            for leaf in each
        ]
        if not each:
            each = [np.zeros(room, np.int8)]
        padded = room > len(lanes)
        key = tree, alike, devices, padded
        if key not in programs:
            programs[key] = _program(one, many, tree, alike, devices, padded)
        real = np.arange(room) < len(lanes)
        answer = jax.device_get(programs[key](common, each, real))
        leaves, answer_tree = jax.tree.flatten(answer)
        return [
            jax.tree.unflatten(answer_tree, [leaf[i] for leaf in leaves])
            for i in range(len(lanes))
        ]

    return run


def _program(
    one: Callable[[Any], Any],
    many: Callable[[Any], Any] | None,
    tree: Any,
    alike: tuple[bool, ...],
    devices: int,
    padded: bool,
) -> Callable[..., Any]:
    one = jax.jit(one)  # traced once, for its shape and for its program

    def lane_answer(common: list[Any], each: list[Any], real: Any) -> Any:
        shared, own = iter(common), iter(each)
        leaves = [next(shared) if same else next(own) for same in alike]
        lane = jax.tree.unflatten(tree, leaves)
        if not padded:
            return one(lane)
        shape = jax.eval_shape(one, lane)

        def nothing() -> Any:
            return jax.tree.map(lambda s: jax.numpy.zeros(s.shape, s.dtype), shape)

        return jax.lax.cond(real, lambda: one(lane), nothing)

    def in_turn(common: list[Any], each: list[Any], real: Any) -> Any:
        return jax.lax.map(
            lambda lane: lane_answer(common, list(lane[0]), lane[1]), (each, real)
        )

    def side_by_side(common: list[Any], each: list[Any], real: Any) -> Any:
        assert many is not None
        shared, own, count = iter(common), iter(each), real.size
        leaves = [
            jax.numpy.broadcast_to(value := next(shared), (count, *value.shape))
            if same
            else next(own)
            for same in alike
        ]
        return many(jax.tree.unflatten(tree, leaves))

    run = in_turn if many is None else side_by_side
    if devices == 1:
        return jax.jit(run)
    mesh = Mesh(np.array(jax.local_devices()), ("lanes",))
    lanes = PartitionSpec("lanes")
    spread = jax.shard_map(
        run,
        mesh=mesh,
        in_specs=(PartitionSpec(), lanes, lanes),
        out_specs=lanes,
        check_vma=False,
    )
    return jax.jit(spread)
