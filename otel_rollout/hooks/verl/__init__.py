"""Tracing of verl (https://github.com/verl-project/verl) without an edit of it; see docs/how-to/verl.md.

`plugin` is the entry point.
"""

from otel_rollout.hooks.verl.config import max_samples, start
from otel_rollout.hooks.verl.identity import META_KEY, Batch, BatchLedger, Identity, PromptSelection, Row, identify
from otel_rollout.hooks.verl.late_rewards import CARRIER
from otel_rollout.hooks.verl.rollout import Rollout, rollout_variable

__all__ = [
    "CARRIER",
    "META_KEY",
    "Batch",
    "BatchLedger",
    "Identity",
    "PromptSelection",
    "Rollout",
    "Row",
    "identify",
    "max_samples",
    "rollout_variable",
    "start",
]
