"""The table layouts of MLflow's tracking database that rows are written into, by schema revision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["COSTS", "LAYOUTS", "TOKENS", "Layout"]

_TOKENS: Final = (
    "input_tokens",
    "output_tokens",
    "total_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
)
TOKENS: Final = (*_TOKENS, "cache_creation_input_tokens_above_1hr")
COSTS: Final = ("input_cost", "output_cost", "total_cost")


@dataclass(frozen=True)
class Layout:
    """The differences between schema revisions, and between the rows that their MLflow writes.

    Args:
        sums_flatly: Token usage of a trace is the sum over its spans; later versions skip spans inside counted ones.
        has_columns: Names, sessions, tokens and costs are columns; before, they are tags, metadata and metrics.
        has_kind: A span's content has its kind.
        token_keys: The token counts that are summed.
    """

    sums_flatly: bool = False
    has_columns: bool = True
    has_kind: bool = False
    token_keys: tuple[str, ...] = _TOKENS

    @property
    def trace_columns(self) -> tuple[str, ...]:
        """The columns of `trace_info`, the key first."""
        common = (
            "request_id",
            "experiment_id",
            "timestamp_ms",
            "execution_time_ms",
            "status",
            "request_preview",
            "response_preview",
            "db_payload_generation",
        )
        return (*common, "trace_name", "session_id", *self.token_keys, *COSTS) if self.has_columns else common

    @property
    def span_columns(self) -> tuple[str, ...]:
        """The columns of `spans` that are written, the key first."""
        common = (
            "trace_id",
            "span_id",
            "experiment_id",
            "parent_span_id",
            "name",
            "type",
            "status",
            "start_time_unix_nano",
            "end_time_unix_nano",
            "content",
        )
        return (
            (*common, *COSTS, "model_name", "model_provider") if self.has_columns else (*common, "dimension_attributes")
        )


LAYOUTS: Final = {
    "b7e4c1a90f23": Layout(sums_flatly=True, has_columns=False),  # mlflow 3.14
    "6f8d9c3b2a1e": Layout(has_columns=False),  # 3.15
    "b7e2c1a4d9f3": Layout(has_columns=False),  # 3.16
    "dc11669786a5": Layout(token_keys=TOKENS),  # 3.17
    "f4a9b2c7d1e6": Layout(token_keys=TOKENS, has_kind=True),  # 3.18
}
