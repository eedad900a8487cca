"""Compiled programs are kept by the command, never by the library."""

import json
import os
import subprocess
import sys


def settings(tmp_path, code, **environment):
    """jax's cache settings after `code`, in a process of its own."""
    script = (
        f"{code}\nimport jax, json\nprint(json.dumps([str(jax.config.values[name]) "
        "for name in ('jax_compilation_cache_dir', "
        "'jax_persistent_cache_min_compile_time_secs', "
        "'jax_persistent_cache_min_entry_size_bytes', 'jax_enable_x64')]))"
    )
    kept = {key: value for key, value in os.environ.items() if "JAX" not in key}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**kept, "AISIM_CACHE_DIR": str(tmp_path / "cache"), **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


ENABLE = "from aisim_jax.cli._compile_cache import enable_compile_cache as go; go()"


def test_command_keeps_everything_in_the_users_folder(tmp_path):
    folder, least_s, least_bytes, wide = settings(tmp_path, ENABLE)
    assert folder == str(tmp_path / "cache" / "compiled")
    assert (float(least_s), int(least_bytes), wide) == (0.0, -1, "False")


def test_users_own_folder_wins(tmp_path):
    own = str(tmp_path / "own")
    assert settings(tmp_path, ENABLE, JAX_COMPILATION_CACHE_DIR=own)[0] == own


def test_unwritable_folder_leaves_the_cache_off(tmp_path):
    (tmp_path / "file").write_text("")
    folder = str(tmp_path / "file" / "below")
    assert settings(tmp_path, ENABLE, AISIM_CACHE_DIR=folder)[0] == "None"


def test_library_changes_no_setting(tmp_path):
    plain = settings(tmp_path, "")
    assert settings(tmp_path, "from aisim_jax import best_available, sweep") == plain


def test_progress_shows_on_a_terminal_only(monkeypatch, capsys):
    from aisim_jax.cli import _progress

    with _progress.progress("working"):
        pass
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setattr(_progress, "PATIENCE_S", 0.0)
    import threading

    shown = threading.Event()
    start = _progress.threading.Timer

    def timer(patience_s, function):
        def show():
            function()
            shown.set()

        return start(patience_s, show)

    monkeypatch.setattr(_progress.threading, "Timer", timer)
    with _progress.progress("working"):
        assert shown.wait(30)
    out, message = capsys.readouterr()
    assert not out and "working" in message
