"""Lanes spread over several devices."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest


HERE = Path(__file__).resolve().parent
FORCED = "--xla_force_host_platform_device_count"


def answers(engine: str, devices: int, folder: Path) -> dict[str, np.ndarray]:
    """What a process with so many CPU devices replays."""
    target = folder / f"{devices}.npz"
    subprocess.run(
        [sys.executable, str(HERE / "replay_device_lanes.py"), engine, str(target)],
        env={
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": f"{FORCED}={devices}",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        },
        check=True,
    )
    with np.load(target) as stored:
        found = dict(stored)
    assert found.pop("devices") == devices
    return found


@pytest.mark.parametrize(
    "engine",
    [
        "counting",
        pytest.param("block", marks=pytest.mark.slow_replay),
        pytest.param("radix", marks=pytest.mark.slow_replay),
    ],
)
def test_four_devices_answer_bit_for_bit_what_one_does(
    engine: str, tmp_path: Path
) -> None:
    one, four = (answers(engine, devices, tmp_path) for devices in (1, 4))
    assert one.keys() == four.keys()
    unlike = [
        name
        for name, value in one.items()
        if value.dtype != four[name].dtype or value.tobytes() != four[name].tobytes()
    ]
    assert not unlike
