"""Running one-lane programs over many lanes: in turn on a CPU, side by side on devices."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from .._precision import precision


T = TypeVar("T")


class Launch(NamedTuple):
    """How lanes are put together.

    rooms: lanes per device that a launch can hold; each is a program. most_bytes: of
    the inputs of a launch, and so, roughly, of its answers. large_bytes: a larger array
    is passed once, so the lanes of a launch must share it.
    """

    rooms: tuple[int, ...]
    most_bytes: int
    large_bytes: int


IN_TURN = Launch((1, 16), 1 << 25, 1 << 17)
SIDE_BY_SIDE = Launch((1, 16, 256, 4096), 1 << 30, 1 << 23)


def side_by_side() -> bool:
    """Whether lanes run side by side: on accelerators, where the engine can."""
    return jax.default_backend() != "cpu"


def _is_large(leaf: Any) -> bool:
    launch = SIDE_BY_SIDE if side_by_side() else IN_TURN
    return np.asarray(leaf).nbytes > launch.large_bytes


def lane_kind(lane: Any) -> Hashable:
    """Lanes of one kind fit one launch: equal shapes, and the same large arrays."""
    leaves, tree = jax.tree.flatten(lane)
    return tree, tuple(
        id(leaf) if _is_large(leaf) else (np.shape(leaf), np.asarray(leaf).dtype.str)
        for leaf in leaves
    )


def grouped(members: Iterable[int], key: Callable[[int], Hashable]) -> list[list[int]]:
    """Members of equal keys, in order of first appearance."""
    groups: dict[Hashable, list[int]] = {}
    for member in members:
        groups.setdefault(key(member), []).append(member)
    return list(groups.values())


def at_once(work: Callable[[T], None], items: Iterable[T], program: Callable) -> None:
    """`work` of every item; on a CPU one `program` compiles while another runs."""
    queues: dict[Hashable, list[T]] = {}
    for item in items:
        queues.setdefault(program(item), []).append(item)

    def drain(queue: list[T]) -> None:
        with precision():
            for item in queue:
                work(item)

    threads = 1 if side_by_side() else min(len(queues), os.cpu_count() or 1)
    if threads < 2:
        for queue in queues.values():
            drain(queue)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(drain, queues.values()))


def lane_runner(
    one: Callable[[Any], Any], many: Callable[[Any], Any] | None = None
) -> Callable[[Sequence[Any]], list[Any]]:
    """A function from lanes of one `lane_kind` (NumPy leaves) to their NumPy answers.

    `one` maps a lane to a pytree of arrays; lanes run in turn, or, where `many` is given
    (leaves lead with lanes), side by side. The batch is cut into launches and, with
    several local devices, dealt out to them; each lane's arithmetic is the same in every
    arrangement.
    """
    programs: dict[Any, Callable[..., Any]] = {}
    rooms, most_bytes, _ = IN_TURN if many is None else SIDE_BY_SIDE

    def run(lanes: Sequence[Any]) -> list[Any]:
        answers: list[Any] = []
        devices = jax.local_device_count()
        own = [leaf for leaf in jax.tree.leaves(lanes[0]) if not _is_large(leaf)]
        bytes_each = sum(np.asarray(leaf).nbytes for leaf in own)
        most = max(
            room for room in rooms if room * bytes_each <= most_bytes or room == 1
        )
        most *= devices
        for start in range(0, len(lanes), most):
            answers += launch(lanes[start : start + most], devices)
        return answers

    def launch(lanes: Sequence[Any], devices: int) -> list[Any]:
        flat = [jax.tree.flatten(lane) for lane in lanes]
        tree = flat[0][1]
        columns = list(zip(*(leaves for leaves, _ in flat), strict=True))
        common = tuple(_is_large(column[0]) for column in columns)
        share = -(-len(lanes) // devices)
        room = min(room for room in rooms if room >= share)
        # Lane i goes to device i modulo devices; a device's lanes come first in its share.
        place = (
            np.arange(len(lanes)) % devices * room + np.arange(len(lanes)) // devices
        )
        given = []
        for column, once in zip(columns, common, strict=True):
            if once:
                given.append(column[0])
                continue
            stacked = np.stack([np.asarray(leaf) for leaf in column])
            spread = np.repeat(stacked[:1], room * devices, 0)
            spread[place] = stacked
            given.append(spread)
        real = np.zeros(room * devices, bool)
        real[place] = True
        key = tree, common, devices
        if key not in programs:
            programs[key] = _program(one, many, tree, common, devices)
        answer = jax.device_get(programs[key](given, real))
        leaves, answer_tree = jax.tree.flatten(answer)
        return [
            jax.tree.unflatten(answer_tree, [leaf[i] for leaf in leaves]) for i in place
        ]

    return run


def _program(
    one: Callable[[Any], Any],
    many: Callable[[Any], Any] | None,
    tree: Any,
    common: tuple[bool, ...],
    devices: int,
) -> Callable[..., Any]:
    one = jax.jit(one)  # traced once, for its shape and for its program

    def in_turn(given: list[Any], real: Any) -> Any:
        def answer_of(i: Any) -> Any:
            leaves = [
                leaf if once else leaf[i]
                for leaf, once in zip(given, common, strict=True)
            ]
            return one(jax.tree.unflatten(tree, leaves))

        if real.size == 1:
            return jax.tree.map(lambda leaf: leaf[None], answer_of(0))
        nothing = jax.tree.map(
            lambda leaf: jax.numpy.zeros((real.size, *leaf.shape), leaf.dtype),
            jax.eval_shape(answer_of, 0),
        )

        def put(i: Any, answers: Any) -> Any:
            return jax.tree.map(
                lambda all_, leaf: all_.at[i].set(leaf), answers, answer_of(i)
            )

        count = jax.numpy.sum(real, dtype="int32")
        return jax.lax.fori_loop(0, count, put, nothing)

    def together(given: list[Any], real: Any) -> Any:
        assert many is not None
        leaves = [
            jax.numpy.broadcast_to(leaf, (real.size, *leaf.shape)) if once else leaf
            for leaf, once in zip(given, common, strict=True)
        ]
        return many(jax.tree.unflatten(tree, leaves))

    run = in_turn if many is None else together
    if devices == 1:
        return jax.jit(run)
    mesh = Mesh(np.array(jax.local_devices()), ("lanes",))
    lanes = PartitionSpec("lanes")
    leaves = [PartitionSpec() if once else lanes for once in common]
    spread = jax.shard_map(
        run, mesh=mesh, in_specs=(leaves, lanes), out_specs=lanes, check_vma=False
    )
    return jax.jit(spread)
