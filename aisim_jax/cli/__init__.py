"""The `aisim` command."""

from ._main import main as main
from ._main import run as run
