"""Recorded signatures of hooked functions, for each supported version of a library.

`<library>/recorded.json` holds each function's kind and parameters by version. A hook that adds arguments does so only
if the function's source is recorded too, by a checksum: other code may pass them on to where they don't belong. `later`
has the checksums of sources after the version that pass them on in the same way.
`scripts/drift.py` compares the file with an installed library, and writes it.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from otel_rollout.hooks.hook import Hook, Patch


def path_of(library: str) -> Path:
    """Return the path of a library's recorded file."""
    return Path(__file__).parent / library / "recorded.json"


def read(library: str) -> dict[str, dict[str, dict[str, str]]]:
    """Return a library's recorded functions by version and key."""
    content: dict[str, dict[str, dict[str, str]]] = json.loads(path_of(library).read_text())
    return content


def is_known(hook: Hook, function: Callable[..., Any]) -> bool:
    """Return True if the source of a hook's function is recorded."""
    found = digest(function, hook.module)
    return bool(found) and found in _digests(hook.module.partition(".")[0]).get(key_of(hook), ())


def key_of(hook: Hook | Patch) -> str:
    """Return a hook's key in the recorded file."""
    return f"{hook.module}:{hook.target}"


def digest(function: Callable[..., Any], module: str) -> str:
    """Return a checksum of a function's source; empty if it can't be read, or other code has wrapped the function.

    Args:
        function: The function. Decorators of its own package are unwrapped: they are part of its source.
        module: The module that defines it.
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
def _digests(library: str) -> dict[str, set[str]]:
    known: dict[str, set[str]] = {}
    for functions in read(library).values():
        for key, facts in functions.items():
            known.setdefault(key, set()).update((facts.get("digest", ""), *facts.get("later", "").split()))
    return known
