"""A sign of life on a terminal when work takes longer than a second."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


PATIENCE_S = 1.0


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Show `what` with the time spent on stderr, after a second, on a terminal only."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    display = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    display.add_task(what, total=None)
    timer = threading.Timer(PATIENCE_S, display.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        display.stop()


@contextmanager
def counted_progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function of (done, total) that shows share, rate and time left on stderr.

    On a terminal only; elsewhere it shows nothing.
    """
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    display = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = display.add_task(what, total=None, rate="")

    def tell(done: int, total: int) -> None:
        speed = display.tasks[0].speed
        rate = f"{speed:.0f}/s" if speed else ""
        display.update(task, completed=done, total=total, rate=rate)

    with display:
        yield tell
