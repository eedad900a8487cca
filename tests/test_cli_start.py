"""The command as a process: quick, one sentence per mistake, right exit codes."""

import subprocess
import sys

import pytest


def aisim(*words, code=""):
    """Run the command in its own process and list the modules that it imported."""
    script = (
        "import sys\nfrom aisim_jax.cli import run\n"
        f"rc = run({list(words)!r})\n"
        "print('MODULES', *sys.modules, file=sys.stderr)\nsys.exit(rc)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code + script],
        capture_output=True,
        text=True,
        timeout=60,
    )
    message, _, modules = done.stderr.partition("MODULES")
    return done.returncode, done.stdout, message, set(modules.split())


HEAVY = {"jax", "jaxlib", "equinox", "numpy", "matplotlib", "plotly"}


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--help"],
        ["sweep", "--help"],
        ["profiles", "--help"],
        ["version"],
        ["--version"],
    ],
)
def test_help_imports_nothing_heavy(words):
    code, out, message, modules = aisim(*words)
    assert code == 0 and out and not message
    assert not modules & HEAVY


@pytest.mark.parametrize(
    ("words", "claim"),
    [
        (["sweep", "--modle", "x"], "No such option"),
        (["sweeep"], "No such command"),
        (["sweep"], "--model"),
        (["sweep", "--model", "x", "--isl", "-3"], "--isl"),
        (["sweep", "--model", "x", "--osl", "0"], "--osl"),
        (["sweep", "--model", "x", "--gpus", "many"], "--gpus"),
        (["sweep", "--model", "x", "--format", "xml"], "--format"),
        (["sweep", "--model", "x", "--plot", "a.pdf"], "must end in .html or .png"),
        (["sweep", "--model", "x", "--mode", "fast"], "--mode"),
        (["sweep", "--model", "x", "--tpot", "-1"], "--tpot"),
        (
            [
                *("sweep", "--model", "x", "--target-request-rate", "1"),
                *("--target-concurrency", "2"),
            ],
            "one of --target-request-rate and --target-concurrency",
        ),
        (["capacity", "--model", "x", "--system", "y", "--backend", "z"], "--backend"),
    ],
)
def test_wrong_flags_are_one_sentence_without_jax(words, claim):
    code, out, message, modules = aisim(*words)
    assert code == 2 and not out
    assert claim in message
    assert len(message.strip().splitlines()) == 1
    assert not modules & HEAVY


def test_interrupt_is_130():
    code = (
        "import aisim_jax.systems as s\n"
        "def stop(*a): raise KeyboardInterrupt\ns.list_profiles = stop\n"
    )
    assert aisim("profiles", "list", code=code)[0] == 130
