"""The limits of a span, by OpenTelemetry's environment variables."""

from __future__ import annotations

import sys
from typing import Final, NamedTuple

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


def environment_limits() -> SpanLimits:
    """Return the environment's limits as the SDK reads them; the default ones, with a warning, if one is wrong."""
    try:
        return SpanLimits()
    except ValueError as error:
        _logger.warning("%s: spans have the default limits", error)
        return SpanLimits(*[DEFAULT_COUNT] * 6, *[SpanLimits.UNSET] * 2)


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
