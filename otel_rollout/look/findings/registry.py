"""All checks, in the order in which their findings are listed."""

from __future__ import annotations

from typing import Final

from otel_rollout.look.findings import (
    duplicates,
    failures,
    groups,
    lengths,
    losses,
    reward_parts,
    staleness,
    stragglers,
    token_drift,
    tools,
    truncation,
)
from otel_rollout.look.findings.check import Check

__all__ = ["CHECKS", "default_thresholds"]

CHECKS: Final[tuple[Check, ...]] = (
    *losses.CHECKS,
    *token_drift.CHECKS,
    *reward_parts.CHECKS,
    *failures.CHECKS,
    *groups.CHECKS,
    *truncation.CHECKS,
    *tools.CHECKS,
    *duplicates.CHECKS,
    *lengths.CHECKS,
    *stragglers.CHECKS,
    *staleness.CHECKS,
)


def default_thresholds() -> dict[str, float]:
    """Return the default of each threshold by its check's name."""
    return {check.name: check.threshold.default for check in CHECKS}
