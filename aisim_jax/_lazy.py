"""Names of a package that load on first use, so that importing it stays cheap."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of `package`; `homes` gives the module of every public name.

    A name whose home is the subpackage of that name stands for the subpackage itself
    (see `callable_package`).
    """

    def load(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(home, package)
        value = module if home == f".{name}" else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return load


def callable_package(package: str, name: str) -> None:
    """Let `package` be called like its public function `name`.

    A package and the function that people come for may share a name: importing the
    package replaces the function of the parent, so the package answers calls itself.
    """

    class CallablePackage(ModuleType):
        def __call__(self, *arguments: Any, **options: Any) -> Any:
            return getattr(self, name)(*arguments, **options)

    sys.modules[package].__class__ = CallablePackage
