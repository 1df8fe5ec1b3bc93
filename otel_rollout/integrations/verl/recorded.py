"""What the functions that we hook look like in the versions of verl that we know.

`recorded.json` has for each version and function its kind and its parameters. A hook that adds to what a function gets
does so only where the body is one that is recorded too, by a digest of its source: in another one what is added may end
up where it isn't expected. `scripts/drift.py` compares the file with an installed verl, and writes it.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from otel_rollout.capture.signature import read_signature
from otel_rollout.integrations.verl.hook import Hook, Patch

__all__ = ["describe", "digest", "is_known", "key_of", "read"]

FILE: Final = Path(__file__).with_name("recorded.json")


def read() -> dict[str, dict[str, dict[str, str]]]:
    """Return what is recorded, by version and function."""
    content: dict[str, dict[str, dict[str, str]]] = json.loads(FILE.read_text())
    return content


def is_known(hook: Hook, function: Callable[..., Any]) -> bool:
    """Whether a function's body is one that is recorded.

    Args:
        hook: What it is hooked by.
        function: The function.
    """
    found = digest(function, hook.module)
    return bool(found) and found in _digests().get(key_of(hook), ())


def key_of(hook: Hook | Patch) -> str:
    """Return the name under which what a hook is put on is recorded."""
    return f"{hook.module}:{hook.target}"


def describe(hook: Hook | Patch, module: Any) -> dict[str, str]:
    """Return what is recorded of what a hook is put on.

    Args:
        hook: The hook.
        module: The module, imported and not hooked.
    """
    *path, name = hook.target.split(".")
    try:
        owner = functools.reduce(getattr, path, module)
        found = vars(owner)[name]
    except (AttributeError, KeyError):
        return {"kind": "missing"}
    function = getattr(found, "__func__", found)
    if not inspect.isfunction(function):
        return {"kind": type(function).__name__}
    kinds = [type(found).__name__] if function is not found else []
    tests = {
        "coroutine function": inspect.iscoroutinefunction,
        "async generator": inspect.isasyncgenfunction,
        "generator": inspect.isgeneratorfunction,
    }
    kinds.append(next((kind for kind, test in tests.items() if test(function)), "function"))
    signature = read_signature(function)
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
    text = str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))
    facts = {"kind": " ".join(kinds), "signature": text}
    if isinstance(hook, Hook) and hook.lost_unknown:
        facts["digest"] = digest(function, hook.module)
    return facts


def digest(function: Callable[..., Any], module: str) -> str:
    """Return a digest of a function's source; empty where it can't be told, or others have wrapped the function.

    Args:
        function: The function. Decorators of its own package are looked through: they stand in its source.
        module: The module that it is defined in.
    """
    own = {module.partition(".")[0], "contextlib"}
    while True:
        # Not `__module__`, which `functools.wraps` copies.
        if str(getattr(function, "__globals__", {}).get("__name__")).partition(".")[0] not in own:
            return ""
        if not hasattr(function, "__wrapped__"):
            break
        function = function.__wrapped__
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError, SyntaxError):
        return ""
    return hashlib.sha256(source.encode()).hexdigest()[:16]


@functools.cache
def _digests() -> dict[str, set[str]]:
    known: dict[str, set[str]] = {}
    for functions in read().values():
        for key, facts in functions.items():
            known.setdefault(key, set()).add(facts.get("digest", ""))
    return known
