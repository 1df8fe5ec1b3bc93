"""What the installed version of the OpenTelemetry SDK can do."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan


def _ways_to_copy() -> list[Callable[[Any], Any]]:
    try:
        copy.deepcopy(ReadableSpan("op").resource)
    except TypeError:
        # Before 1.41, the attributes of a resource hold a lock.
        return [copy.copy]
    return [copy.copy, copy.deepcopy]


COPIES: Final = _ways_to_copy()
"""Ways to copy a span that work with the SDK's own spans."""
