"""Files appear complete or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from aisim_jax._errors import InvalidInputError


def write_file(path: Path, content: str | bytes) -> None:
    """Write to a temporary file in the same folder, then rename it into place.

    The folder is created when it is missing.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise InvalidInputError(
            f"Cannot write {str(path)!r}: {error.strerror}; choose another place."
        ) from None
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        # A temporary file is private; give it the mode of an ordinary new file.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
