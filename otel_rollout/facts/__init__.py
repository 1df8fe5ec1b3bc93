"""Facts of a trajectory, and how they follow from its spans; without I/O."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_rollout.facts.builder import Collected, SummaryBuilder
    from otel_rollout.facts.conversations import Conversation, Conversations, conversations_of
    from otel_rollout.facts.figures import SpanError, ToolCounts
    from otel_rollout.facts.json_types import from_json, to_json
    from otel_rollout.facts.odd_results import is_odd_result
    from otel_rollout.facts.reward_parts import RewardPart, reward_parts_of
    from otel_rollout.facts.shapes import SpanShape, shapes_of
    from otel_rollout.facts.span_facts import reward_of, span_id_of, trace_id_of
    from otel_rollout.facts.span_messages import input_messages, said_by
    from otel_rollout.facts.summaries import summarise_trajectory
    from otel_rollout.facts.table import (
        COLUMNS,
        FACTS,
        INFERRED,
        OF_FILES,
        SUMS,
        Percentiles,
        Sum,
        TrajectorySummary,
        columns_of,
        shown_of,
    )
    from otel_rollout.facts.trace_tree import Place, error_of, time_bar, walk_tree
    from otel_rollout.facts.utterances import Utterance, utterances_of
else:
    from otel_rollout.lazy import lazy_names

    __getattr__ = lazy_names(
        __name__,
        {
            "builder": ("Collected", "SummaryBuilder"),
            "conversations": ("Conversation", "Conversations", "conversations_of"),
            "figures": ("SpanError", "ToolCounts"),
            "json_types": ("from_json", "to_json"),
            "reward_parts": ("RewardPart", "reward_parts_of"),
            "shapes": ("SpanShape", "shapes_of"),
            "span_facts": ("reward_of", "span_id_of", "trace_id_of"),
            "span_messages": ("input_messages", "said_by"),
            "odd_results": ("is_odd_result",),
            "summaries": ("summarise_trajectory",),
            "table": (
                "COLUMNS",
                "FACTS",
                "INFERRED",
                "OF_FILES",
                "Percentiles",
                "SUMS",
                "Sum",
                "TrajectorySummary",
                "columns_of",
                "shown_of",
            ),
            "trace_tree": ("Place", "error_of", "time_bar", "walk_tree"),
            "utterances": ("Utterance", "utterances_of"),
        },
    )
