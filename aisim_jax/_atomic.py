"""Files appear complete or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ._errors import InvalidInputError


def write_file(path: Path, content: str | bytes) -> None:
    """Write to a temporary file in the same folder, then rename it into place.

    The folder is created when it is missing.
    """
    data = content.encode() if isinstance(content, str) else content
    temporary = None
    try:
        check_writable(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        # A temporary file is private; give it the mode of an ordinary new file.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except BaseException as error:
        if temporary is not None:
            os.unlink(temporary)
        if isinstance(error, OSError):
            raise _refused(path, str(error.strerror)) from None
        raise


def check_writable(path: Path) -> None:
    """Refuse a place where no file can be written, before it is worth anything."""
    if os.path.isdir(path):
        raise _refused(path, "Is a directory")
    near = next(p for p in path.absolute().parents if os.path.exists(p))
    if not near.is_dir():
        raise _refused(path, f"{near} is not a directory")
    if not os.access(near, os.W_OK | os.X_OK):
        raise _refused(path, f"no permission to write in {near}")


def _refused(path: Path, reason: str) -> InvalidInputError:
    return InvalidInputError(
        f"Cannot write {str(path)!r}: {reason}; choose another place."
    )
