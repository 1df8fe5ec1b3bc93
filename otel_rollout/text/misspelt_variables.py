"""Find the variables of the environment that nothing reads."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final

from otel_rollout.text.near_miss import MAX_EDITS, PREFIXES, closest, edits

MIN_LENGTH: Final = 8
_OTELS_MODULES: Final = ("opentelemetry.environment_variables", "opentelemetry.sdk.environment_variables")


def unread_variables(environ: Mapping[str, str], known: Iterable[str], ours: str) -> dict[str, str | None]:
    """Return the variables that nothing reads, each with the intended one, if one is near.

    Args:
        environ: The environment.
        known: The variables that are read here, besides OpenTelemetry's own.
        ours: The prefix of variables that nobody else reads; of others, only those that are nearly a known one count.
    """
    names = sorted({*known, *_variables_of_opentelemetry()})
    found: dict[str, str | None] = {}
    for name in sorted(environ):
        if name in names or len(name) < MIN_LENGTH or not name.startswith(PREFIXES):
            continue
        near = min(names, key=lambda one: edits(name, one), default="")
        if near and edits(name, near) <= MAX_EDITS:
            found[name] = near
        elif name.startswith(ours):
            found[name] = closest(name, known)
    return found


@cache
def _variables_of_opentelemetry() -> frozenset[str]:
    modules = [importlib.import_module(name) for name in _OTELS_MODULES]
    return frozenset(name for module in modules for name in vars(module) if name.startswith("OTEL_"))
