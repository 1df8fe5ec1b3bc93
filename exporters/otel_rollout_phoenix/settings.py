"""Phoenix's address and credentials, from the variables that `phoenix.otel.register` reads."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from otel_rollout.errors import ConfigurationError
from otel_rollout.export.header_variable import read_headers
from otel_rollout.export.http import shown_url
from otel_rollout.export.otlp_http import TRACES_PATH

__all__ = ["DEFAULT_PROJECT", "PhoenixSettings", "default_project", "read_settings"]

ENDPOINT: Final = "PHOENIX_COLLECTOR_ENDPOINT"
DEFAULT_ADDRESS: Final = "http://localhost:6006"
DEFAULT_PROJECT: Final = "default"
"""The project in Phoenix of spans that name none."""


@dataclass(frozen=True)
class PhoenixSettings:
    """The settings of one exporter.

    Args:
        address: The base address, without a slash at its end.
        headers: Sent with each request.
    """

    address: str
    headers: dict[str, str]

    def check(self) -> None:
        """Raise a ConfigurationError if the address is no URL."""
        parts = urlsplit(self.address)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            shown = shown_url(self.address)
            raise ConfigurationError(f"{ENDPOINT}={shown!r}: this should be a URL such as {DEFAULT_ADDRESS}")


def read_settings(
    endpoint: str | None = None, api_key: str | None = None, headers: Mapping[str, str] | None = None
) -> PhoenixSettings:
    """Return the settings of the arguments, else of the environment.

    Args:
        endpoint: The base address, with or without `/v1/traces`.
        api_key: The key.
        headers: Headers besides the environment's.
    """
    address = (endpoint or os.environ.get(ENDPOINT) or DEFAULT_ADDRESS).strip().rstrip("/")
    key = (api_key or os.environ.get("PHOENIX_API_KEY") or "").strip()
    given = read_headers("PHOENIX_CLIENT_HEADERS", os.environ.get("PHOENIX_CLIENT_HEADERS"))
    if key:
        given["authorization"] = f"Bearer {key}"
    given.update({name.lower(): value for name, value in (headers or {}).items()})
    return PhoenixSettings(address.removesuffix(TRACES_PATH), given)


def default_project() -> str | None:
    """Return the project for spans that name none, if the environment has one."""
    for variable in ("PHOENIX_PROJECT", "PHOENIX_PROJECT_NAME"):
        name = os.environ.get(variable, "").strip()
        if name:
            return name
    return None
