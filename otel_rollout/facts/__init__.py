"""Facts of a trajectory, and how they follow from its spans; without I/O."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_rollout.facts.builder import Collected, SpanError, SummaryBuilder
    from otel_rollout.facts.figures import ToolCounts
    from otel_rollout.facts.json_types import from_json, to_json
    from otel_rollout.facts.span_facts import reward_of, span_id_of, trace_id_of
    from otel_rollout.facts.summaries import merge_summaries, summarise_trajectory
    from otel_rollout.facts.table import COLUMNS, FACTS, SUMS, Percentiles, SpanShape, TrajectorySummary, columns_of
else:
    from otel_rollout.lazy import lazy_names

    __getattr__ = lazy_names(
        __name__,
        {
            "builder": ("Collected", "SpanError", "SummaryBuilder"),
            "figures": ("ToolCounts",),
            "json_types": ("from_json", "to_json"),
            "span_facts": ("reward_of", "span_id_of", "trace_id_of"),
            "summaries": ("merge_summaries", "summarise_trajectory"),
            "table": ("COLUMNS", "FACTS", "SUMS", "Percentiles", "SpanShape", "TrajectorySummary", "columns_of"),
        },
    )

__all__ = [
    "COLUMNS",
    "FACTS",
    "SUMS",
    "Collected",
    "Percentiles",
    "SpanError",
    "SpanShape",
    "SummaryBuilder",
    "ToolCounts",
    "TrajectorySummary",
    "columns_of",
    "from_json",
    "merge_summaries",
    "reward_of",
    "span_id_of",
    "summarise_trajectory",
    "to_json",
    "trace_id_of",
]
