"""Values of the environment in a form that can be shown."""

from __future__ import annotations

import re
from typing import Final

from otel_rollout.export.http import without_userinfo

__all__ = ["shown_value"]

# Names of files end otherwise: OTEL_EXPORTER_OTLP_CLIENT_KEY, WANDB_IDENTITY_TOKEN_FILE.
_SECRET: Final = re.compile(r"(?:API_KEY|TOKEN|PASSWORD|SECRET)$")
_PAIRS: Final = re.compile(r"HEADERS$")
_QUERY: Final = re.compile(r"\?.*", re.DOTALL)


def shown_value(variable: str, value: str) -> str:
    """Return what can be shown of a variable: neither a key, nor a header's value, nor a URL's password or query.

    Args:
        variable: Its name.
        value: Its value.
    """
    if _SECRET.search(variable):
        return f"(hidden, {len(value)} characters)"
    if _PAIRS.search(variable):
        return ", ".join(_shown_pair(pair) for pair in value.split(",") if pair.strip())
    if "://" in value or variable.endswith("ENDPOINT"):
        return _QUERY.sub("?(hidden)", without_userinfo(value))
    return value


def _shown_pair(pair: str) -> str:
    name, separator, _ = pair.partition("=")
    # Without a name, the whole may be a secret.
    return f"{name.strip()}=(hidden)" if separator else "(hidden)"
