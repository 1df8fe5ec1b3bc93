"""Run a function once a module has been imported, so that what it defines can be hooked before anybody uses it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

from otel_rollout.integrations.verl.faults import report

__all__ = ["after_import"]

Callback = Callable[[Any], None]

_callbacks: Final[dict[str, list[Callback]]] = {}


def after_import(name: str, callback: Callback) -> None:
    """Call `callback` with the module when it has been imported; at once where it is imported already.

    Args:
        name: The module's full name.
        callback: Takes the module; must not raise.
    """
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if module is not None and not getattr(spec, "_initializing", False):
        callback(module)
        return
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    _callbacks.setdefault(name, []).append(callback)


class _Finder(MetaPathFinder):
    """Finds nothing by itself: lets the others find a watched module and adds to what its loader does."""

    def __init__(self) -> None:
        self._searching: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec that the other finders have for a watched module."""
        if fullname not in _callbacks or fullname in self._searching:
            return None
        self._searching.add(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        except Exception:  # noqa: BLE001, RUF100 - the import system asks the others once more, and has their answer
            return None
        finally:
            self._searching.discard(fullname)
        if spec is not None and spec.loader is not None:
            try:
                _extend(spec.loader, fullname)
            except Exception as error:  # noqa: BLE001, RUF100 - a loader may take no attributes
                report(fullname, f"{fullname} is not traced", error.with_traceback(None))
        return spec


def _extend(loader: Any, name: str) -> None:
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        # Some loaders, zipimport's, have one instance for all modules.
        for callback in _callbacks.pop(name, ()) if module.__name__ == name else ():
            callback(module)

    # On the instance: its type tells others how to read the source.
    loader.exec_module = exec_module
