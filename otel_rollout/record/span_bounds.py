"""The limits of a span, by OpenTelemetry's environment variables."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final, NamedTuple

from opentelemetry.sdk import environment_variables as names
from opentelemetry.sdk.trace import SpanLimits

from otel_rollout.guard.safe_logger import SafeLogger

_logger = SafeLogger()

DEFAULT_COUNT: Final = 128
"""The specification's default: https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/#span-limits."""


class SpanBounds(NamedTuple):
    """The limits of a span; beyond them the last items are dropped and counted; `characters` None is no limit."""

    attributes: int = DEFAULT_COUNT
    events: int = DEFAULT_COUNT
    links: int = DEFAULT_COUNT
    event_attributes: int = DEFAULT_COUNT
    link_attributes: int = DEFAULT_COUNT
    characters: int | None = None
    other_characters: int | None = None
    """The most characters of an attribute of an event or a link."""


DEFAULT_BOUNDS: Final = SpanBounds()

LIMIT_VARIABLES: Final[Mapping[str, str]] = {
    names.OTEL_ATTRIBUTE_COUNT_LIMIT: "max_attributes",
    names.OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT: "max_attribute_length",
    names.OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT: "max_span_attributes",
    names.OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT: "max_span_attribute_length",
    names.OTEL_SPAN_EVENT_COUNT_LIMIT: "max_events",
    names.OTEL_SPAN_LINK_COUNT_LIMIT: "max_links",
    names.OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT: "max_event_attributes",
    names.OTEL_LINK_ATTRIBUTE_COUNT_LIMIT: "max_link_attributes",
}
"""The variables of the limits, each with the name of its argument of `SpanLimits`."""


def environment_limits() -> SpanLimits:
    """Return the environment's limits as the SDK reads them, except that wrong values are logged and ignored."""
    values = {variable: os.environ.get(variable, "").strip() for variable in LIMIT_VARIABLES}
    ignored = [variable for variable, value in values.items() if value and not _is_limit(value)]
    given = {}
    for variable in ignored:
        _logger.warning("%s=%r is ignored: this should be a whole number, 0 or more", variable, values[variable])
        is_length = variable.endswith("_VALUE_LENGTH_LIMIT")
        general = names.OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT if is_length else names.OTEL_ATTRIBUTE_COUNT_LIMIT
        if "ATTRIBUTE" in variable and general not in ignored and values[general]:
            given[LIMIT_VARIABLES[variable]] = int(values[general])
        else:
            given[LIMIT_VARIABLES[variable]] = SpanLimits.UNSET if is_length else DEFAULT_COUNT
    return SpanLimits(**given)


def _is_limit(value: str) -> bool:
    try:
        return int(value) >= 0
    except ValueError:
        return False


def bounds_of(limits: SpanLimits) -> SpanBounds:
    """Return the SDK's limits as bounds."""

    def count(limit: int | None) -> int:
        return sys.maxsize if limit is None else limit

    return SpanBounds(
        count(limits.max_span_attributes),
        count(limits.max_events),
        count(limits.max_links),
        count(limits.max_event_attributes),
        count(limits.max_link_attributes),
        limits.max_span_attribute_length,
        limits.max_attribute_length,
    )
