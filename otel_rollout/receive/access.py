"""The bearer token that senders show, and the addresses that need one."""

from __future__ import annotations

import hmac
import ipaddress
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from otel_rollout.errors import ConfigurationError

TOKEN: Final = "OTEL_ROLLOUT_RECEIVE_TOKEN"  # noqa: S105 - the name of a variable


def read_token(host: str, token_file: Path | None, environ: Mapping[str, str] = os.environ) -> str:
    """Return the token that requests must have; empty if they need none.

    Args:
        host: The address to listen on.
        token_file: The file that has the token; else it is in `OTEL_ROLLOUT_RECEIVE_TOKEN`.
        environ: The environment.

    Raises:
        ConfigurationError: The file can't be read or is empty, a header can't hold the token, or other machines
            reach the address and there is no token.
    """
    if token_file is None:
        token, origin = environ.get(TOKEN, "").strip(), TOKEN
    else:
        origin = f"--token-file {token_file}"
        try:
            token = token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{origin}: the file can't be read: {error}") from error
        if not token:
            raise ConfigurationError(f"{origin}: the file is empty")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigurationError(f"{origin}: a token has printable ASCII characters without spaces")
    if not token and not _is_loopback(host):
        raise ConfigurationError(
            f"--host {host}: other machines reach this address, so senders need a token: "
            f"set {TOKEN}, or name a file with --token-file"
        )
    return token


def is_authorized(token: str, header: str | None) -> bool:
    """Return True if an `Authorization` header has the token, or none is needed; compares in constant time.

    Args:
        token: The token; empty if none is needed.
        header: The header's value; None if it is missing.
    """
    if not token:
        return True
    scheme, _, shown = (header or "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(shown.strip().encode(), token.encode())


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
