"""Install hooks, each as soon as its module has been imported, before any other code uses it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

from otel_rollout.hooks import patching
from otel_rollout.hooks.guard import report
from otel_rollout.hooks.hook import Hook, Patch

_waiting: Final[dict[str, list[Hook | Patch]]] = {}
"""Hooks by the module that is still to be imported."""


def install_hooks(hooks: Iterable[Hook | Patch]) -> None:
    """Install hooks, each as soon as its module is imported; immediately if it is already.

    Hooks are independent: if one doesn't fit, one warning names what isn't traced, and the function stays as it
    is. A function takes one hook; another one is ignored, so that the call may be repeated.

    Args:
        hooks: The hooks.
    """
    for hook in hooks:
        module = sys.modules.get(hook.module)
        spec = getattr(module, "__spec__", None)
        if module is not None and not getattr(spec, "_initializing", False):
            patching.install_hook(hook, module)
            continue
        if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
            sys.meta_path.insert(0, _Finder())
        _waiting.setdefault(hook.module, []).append(hook)


class _Finder(MetaPathFinder):
    """Wraps the loader that another finder returns for a watched module."""

    def __init__(self) -> None:
        self._searching: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the other finders' spec of a watched module, with its loader wrapped."""
        if fullname not in _waiting or fullname in self._searching:
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
        for hook in _waiting.pop(name, ()) if module.__name__ == name else ():
            patching.install_hook(hook, module)

    # Set it on the instance: others learn from its type how to read the source.
    loader.exec_module = exec_module
