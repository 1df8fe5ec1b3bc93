"""The pure functions of MLflow that decide on the content of a span and on a trace's previews and totals.

They are called and never replaced. If a version of MLflow has them no longer, spans are written by its own store.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["MlflowFunctions", "find_functions"]


class MlflowFunctions(NamedTuple):
    """The functions.

    Args:
        translated_span: Returns a span as a dict, with the attributes of other conventions under MLflow's names.
        preview: Returns the text of a trace's input or output that lists show.
        artifact_location: Returns a folder's URI with names appended.
        uses_rollups: Returns True if MLflow keeps tables of sums, which it must then update itself.
    """

    translated_span: Callable[[Any], dict[str, Any]]
    preview: Callable[[Any, str], str | None]
    artifact_location: Callable[..., str]
    uses_rollups: Callable[[], bool]


def find_functions() -> MlflowFunctions | None:
    """Return the functions of the installed version; None if it lacks one."""
    try:
        from mlflow.entities import Span
        from mlflow.tracing.otel.translation import translate_span_when_storing
        from mlflow.tracing.utils.truncation import _get_truncated_preview
        from mlflow.utils.uri import append_to_uri_path
    except ImportError:
        return None
    try:
        from mlflow.store.tracking.utils.sql_trace_rollups import rollups_enabled
    except ImportError:
        # Before 3.17.
        def rollups_enabled() -> bool:
            return False

    return MlflowFunctions(
        translated_span=lambda span: dict(translate_span_when_storing(Span(span))),
        preview=lambda text, role: _get_truncated_preview(text, role=role),
        artifact_location=append_to_uri_path,
        uses_rollups=rollups_enabled,
    )
