"""The log lines of `init`: why nothing is traced, and variables that nothing reads."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.environment_variables import OTEL_TRACES_EXPORTER
from opentelemetry.sdk.environment_variables import (
    OTEL_EXPORTER_OTLP_ENDPOINT,
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT,
    OTEL_SDK_DISABLED,
)

from otel_rollout.backends import GROUP
from otel_rollout.guard.safe_logger import SafeLogger
from otel_rollout.record.provider import is_weaves
from otel_rollout.settings import CHECKED_VARIABLES, OURS, is_disabled
from otel_rollout.text.misspelt_variables import unread_variables

_logger = SafeLogger()

_ENDPOINTS: Final = (OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, OTEL_EXPORTER_OTLP_ENDPOINT)


OTHER_VARIABLES: Final[Mapping[str, str]] = {
    "OTEL_ROLLOUT_DIR": "the trace folder",
    "OTEL_ROLLOUT_DIR_MAX_BYTES": "above this, the folder's oldest files are removed",
    "OTEL_ROLLOUT_VERL": "`off` leaves verl as it is",
    "OTEL_ROLLOUT_RECEIVE_TOKEN": "the token that senders show to `otel-rollout receive`",
    "OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS": "for tests: internal errors are raised",
}
"""Variables of commands and hooks."""


def log_off(*, is_chosen: bool) -> None:
    """Log one line: nothing is traced, and what would change that.

    Args:
        is_chosen: True if someone has chosen so: `backend="none"`, or verl's `trace.backend`.
    """
    if is_disabled():
        _logger.warning("tracing is off: %s=true; unset it to trace", OTEL_SDK_DISABLED)
    elif is_chosen:
        _logger.info("tracing is off: no backend is chosen")
    elif endpoint := next((name for name in _ENDPOINTS if os.environ.get(name, "").strip()), None):
        _logger.warning(
            "tracing is off: %s is set, but it alone switches nothing on; set %s=otlp, or name backend='otlp' in init, "
            "or backend='none' to silence this line",
            endpoint,
            OTEL_TRACES_EXPORTER,
        )
    else:
        provider = "the application has set no tracer provider"
        if is_weaves(trace.get_tracer_provider()):
            provider = "the tracer provider of weave.init() is for Weave's own spans (backend='weave' traces to Weave)"
        _logger.warning(
            "tracing is off: init has no backend, %s is not set, and %s; name a backend, such as backend='console', or "
            "backend='none' to silence this line",
            OTEL_TRACES_EXPORTER,
            provider,
        )


def warn_of_variables(exporters: Mapping[str, Any], known: Iterable[str]) -> None:
    """Warn of each variable of the environment that nothing reads, though its name is one of ours or nearly one.

    Args:
        exporters: The exporters by their names.
        known: The variables that they and the settings read.
    """
    for row in CHECKED_VARIABLES:
        row.value()
    for name, near in unread_variables(os.environ, {*known, *OTHER_VARIABLES}, OURS).items():
        if not _is_of_another(name, exporters):
            _logger.warning("%s: nothing reads this variable%s", name, f"; did you mean {near}?" if near else "")


def _is_of_another(variable: str, exporters: Mapping[str, Any]) -> bool:
    """Return True if a variable begins with the name of an exporter that is installed, and not in use."""
    names = {point.name for point in entry_points(group=GROUP)} - exporters.keys()
    return variable.startswith(tuple(f"{OURS}{name.upper()}_" for name in names))
