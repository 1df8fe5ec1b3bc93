"""Headers from an environment variable.

Source: https://opentelemetry.io/docs/specs/otel/protocol/exporter/#specifying-headers-via-environment-variables
"""

from __future__ import annotations

from urllib.parse import unquote

from otel_rollout.guard.background_log import BackgroundLogger

__all__ = ["read_headers"]

_logger = BackgroundLogger()


def read_headers(variable: str, text: str | None) -> dict[str, str]:
    """Return the headers of a text such as `name=value,other=value`; warn of a part that is no pair.

    Args:
        variable: The variable's name, for the warning.
        text: Its text.
    """
    headers: dict[str, str] = {}
    for position, pair in enumerate((text or "").split(","), 1):
        if not pair.strip():
            continue
        name, separator, value = pair.partition("=")
        if not separator or not name.strip():
            # Without the pair: it may be a secret without its name, or the rest of one with a comma.
            _logger.warning(
                "%s: pair %d is ignored: this should be name=value; pairs are separated by commas, and a comma in a "
                "value is written %%2C",
                variable,
                position,
            )
            continue
        headers[name.strip().lower()] = unquote(value.strip())
    return headers
