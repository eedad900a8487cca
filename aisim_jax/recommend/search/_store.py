"""Finished replays on disk, so that a search that was cut short can go on."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from aisim_jax._atomic import write_file
from aisim_jax._errors import InvalidInputError

from ._canonical import compact, finite
from ._records import Candidate


JOURNAL = ".unfinished-search.jsonl"


class Journal:
    """Figures of replayed candidates, appended batch by batch.

    The first line names the question. A last line that was cut off is ignored.
    """

    def __init__(self, folder: Path, fingerprint: str, *, resume: bool) -> None:
        self.path = folder / JOURNAL
        self._known: dict[str, dict[str, Any]] = {}
        if resume:
            self._known = self._read(fingerprint)
        lines = [{"question": fingerprint}]
        lines += [
            {"candidate": key, "metrics": metrics}
            for key, metrics in self._known.items()
        ]
        write_file(self.path, "".join(compact(line) + "\n" for line in lines))
        self._stream: IO[str] = open(self.path, "a", encoding="utf-8")  # noqa: SIM115

    def _read(self, fingerprint: str) -> dict[str, dict[str, Any]]:
        if not self.path.is_file():
            raise InvalidInputError(
                f"--resume: no unfinished search in {str(self.path.parent)!r}; leave "
                "--resume out to start one"
            )
        lines = self.path.read_text(encoding="utf-8").split("\n")[:-1]
        records = [json.loads(line) for line in lines]
        if not records or records[0].get("question") != fingerprint:
            raise InvalidInputError(
                f"--resume: {str(self.path)!r} belongs to another configuration; use the "
                "same one, or --overwrite to start again"
            )
        return {record["candidate"]: record["metrics"] for record in records[1:]}

    def known(self, candidate: Candidate) -> dict[str, Any] | None:
        """Figures from an earlier run."""
        return self._known.get(_key(candidate))

    def add(self, found: Iterable[tuple[Candidate, Mapping[str, Any]]]) -> None:
        """Append a batch; it is on disk when this returns."""
        for candidate, metrics in found:
            line = {"candidate": _key(candidate), "metrics": finite(metrics)}
            self._stream.write(compact(line) + "\n")
        self._stream.flush()
        os.fsync(self._stream.fileno())

    def close(self, *, keep: bool) -> None:
        """End; a finished search leaves no journal."""
        self._stream.close()
        if not keep:
            self.path.unlink(missing_ok=True)


def _key(candidate: Candidate) -> str:
    return hashlib.sha256(candidate.text.encode()).hexdigest()[:24]
