"""Two runs compared: every figure with its interval, prompts that flipped, findings that are gone and new."""

from otel_rollout.look.compare.comparison import (
    DEFAULT_MARGIN,
    Comparison,
    Figure,
    Flip,
    Part,
    Side,
    compare_runs,
    narrowed,
    sides_of,
)

__all__ = [
    "DEFAULT_MARGIN",
    "Comparison",
    "Figure",
    "Flip",
    "Part",
    "Side",
    "compare_runs",
    "narrowed",
    "sides_of",
]
