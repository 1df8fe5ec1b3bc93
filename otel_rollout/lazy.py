"""Packages whose names are imported at first use, each only with its module: a traced process loads no more."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_names(package: str, modules: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Return a package's `__getattr__`, and set its `__all__`.

    Args:
        package: The name of the package.
        modules: The names that the package exports, by the module that has them.
    """
    places = {name: module for module, names in modules.items() for name in names}
    sys.modules[package].__all__ = sorted(places)  # type: ignore[attr-defined]

    def import_name(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{places[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return import_name
