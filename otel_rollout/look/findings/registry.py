"""All checks, in the order in which their findings are listed."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from otel_rollout.look.findings.check import Check

MODULES: Final = (
    "losses",
    "token_drift",
    "recognition",
    "rewards",
    "reward_parts",
    "exploits",
    "failures",
    "truncation",
    "tools",
    "speed",
    "reward_level",
    "groups",
    "duplicates",
    "lengths",
    "stragglers",
    "staleness",
)
"""The modules of this folder that have checks."""

CHECKS: Final[tuple[Check, ...]] = tuple(
    check for name in MODULES for check in import_module(f"{__package__}.{name}").CHECKS
)


def default_thresholds() -> dict[str, float]:
    """Return the default of each threshold by its check's name."""
    return {check.name: check.threshold.default for check in CHECKS}
