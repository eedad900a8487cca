"""What the README shows runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path


README = Path(__file__).parent.parent / "README.md"


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(), re.M | re.S)


def test_python_example_is_twenty_lines_and_runs():
    (example,) = blocks("python")
    assert len(example.splitlines()) <= 20
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 5


def test_two_set_up_commands_come_first():
    install, test = blocks("sh")
    assert "aisim sweep --model Qwen/Qwen3-32B-FP8" in install
    assert test.strip().endswith("-m pytest")
