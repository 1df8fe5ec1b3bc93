"""Run a callback as soon as a module has been imported, before any other code uses it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

from otel_rollout.integrations.hooks.guard import report
from otel_rollout.integrations.hooks.hook import Patch

__all__ = ["after_import"]

Callback = Callable[[Any], None]

_callbacks: Final[dict[str, list[Callback]]] = {}


def after_import(name: str, callback: Callback) -> None:
    """Call `callback` with a module once it is imported; at once if it is already.

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
    """Wraps the loader that another finder returns for a watched module."""

    def __init__(self) -> None:
        self._searching: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the other finders' spec of a watched module, with its loader wrapped."""
        if fullname not in _callbacks or fullname in self._searching:
            return None
        self._searching.add(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        except (ImportError, ValueError):
            # The import system asks the other finders once more and raises what they raise.
            return None
        finally:
            self._searching.discard(fullname)
        if spec is not None and spec.loader is not None:
            try:
                _extend(spec.loader, fullname)
            except (AttributeError, TypeError) as error:
                # A loader may take no attributes.
                patch = Patch(fullname, fullname, f"{fullname} is not traced", lambda module: None)
                report(patch, error.with_traceback(None))
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
