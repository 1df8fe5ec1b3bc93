"""What OpenTelemetry's environment variables say of an OTLP exporter.

Source: https://opentelemetry.io/docs/specs/otel/protocol/exporter/
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar
from urllib.parse import unquote, urlsplit

from otel_rollout.errors import ConfigurationError
from otel_rollout.export.http import shown_url
from otel_rollout.version import __version__

__all__ = ["USER_AGENT", "OtlpEnvironment", "read_environment"]

_logger = logging.getLogger("otel_rollout")

_Value = TypeVar("_Value")

DEFAULT_TIMEOUT: Final = 10.0
DEFAULT_HTTP_ENDPOINT: Final = "http://localhost:4318"
DEFAULT_GRPC_ENDPOINT: Final = "http://localhost:4317"
# https://opentelemetry.io/docs/specs/otel/protocol/exporter/#user-agent
USER_AGENT: Final = f"otel-rollout/{__version__} OTel-OTLP-Exporter-Python/{__version__}"
TRACES_PATH: Final = "v1/traces"
COMPRESSIONS: Final = ("none", "gzip", "deflate")


@dataclass(frozen=True)
class OtlpEnvironment:
    """The settings of one OTLP exporter.

    Args:
        endpoint: The full URL.
        headers: Sent with each request.
        timeout: Seconds for one request.
        compression: `none`, `gzip` or `deflate`.
        certificate: A file of trusted certificates.
        client_certificate: Our own certificate's file.
        client_key: Its key's file.
        is_insecure: Whether gRPC goes without TLS.
    """

    endpoint: str
    headers: dict[str, str] = field(default_factory=dict)
    timeout: float = 10.0
    compression: str = "none"
    certificate: str | None = None
    client_certificate: str | None = None
    client_key: str | None = None
    is_insecure: bool = False


def read_environment(*, is_grpc: bool) -> OtlpEnvironment:
    """Return what the environment says, each variable for traces before the one for all signals.

    A number, a name or a header that can't work is ignored, as the SDK does.

    Args:
        is_grpc: Whether the protocol is gRPC, whose endpoint has no path.

    Raises:
        ConfigurationError: An endpoint is none, or a certificate's file can't be read.
    """
    variable, given = _read("ENDPOINT")
    endpoint = given
    if endpoint is None:
        endpoint = DEFAULT_GRPC_ENDPOINT if is_grpc else f"{DEFAULT_HTTP_ENDPOINT}/{TRACES_PATH}"
    elif not is_grpc and variable == "OTEL_EXPORTER_OTLP_ENDPOINT":
        endpoint = f"{endpoint.rstrip('/')}/{TRACES_PATH}"
    parts = urlsplit(endpoint)
    has_scheme = parts.scheme in ("http", "https") and bool(parts.netloc)
    is_host_and_port = is_grpc and not has_scheme and "://" not in endpoint and bool(endpoint)
    if not has_scheme and not is_host_and_port:
        right = "a URL such as http://localhost:4317" if is_grpc else "a URL such as http://localhost:4318"
        raise ConfigurationError(f"{variable}={shown_url(given or endpoint)!r}: this should be {right}")
    is_insecure = _read_valid("INSECURE", _boolean, False)  # noqa: FBT003, RUF100 - the default
    return OtlpEnvironment(
        endpoint=endpoint,
        headers=_headers(),
        timeout=_read_valid("TIMEOUT", _seconds, DEFAULT_TIMEOUT),
        compression=_read_valid("COMPRESSION", _compression, "none"),
        certificate=_file("CERTIFICATE"),
        client_certificate=_file("CLIENT_CERTIFICATE"),
        client_key=_file("CLIENT_KEY"),
        is_insecure=parts.scheme == "http" or (is_host_and_port and is_insecure),
    )


def _variables(name: str) -> tuple[str, str]:
    return f"OTEL_EXPORTER_OTLP_TRACES_{name}", f"OTEL_EXPORTER_OTLP_{name}"


def _read(name: str) -> tuple[str, str | None]:
    """Return which variable sets `name`, and its text; the general variable's name and None where neither does."""
    for variable in _variables(name):
        text = os.environ.get(variable, "").strip()
        if text:
            return variable, text
    return f"OTEL_EXPORTER_OTLP_{name}", None


def _read_valid(name: str, read: Callable[[str], _Value], default: _Value) -> _Value:
    """Return the value of the first variable for `name` that can work, each that can't with a warning."""
    for variable in _variables(name):
        text = os.environ.get(variable, "").strip()
        try:
            if text:
                return read(text)
        except ValueError as error:
            _logger.warning("%s=%r is ignored: this should be %s", variable, text, error)
    return default


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ValueError("a positive number of seconds")
    return seconds


def _compression(text: str) -> str:
    if text.lower() not in COMPRESSIONS:
        raise ValueError(f"one of {', '.join(COMPRESSIONS)}")
    return text.lower()


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def _headers() -> dict[str, str]:
    variable, text = _read("HEADERS")
    headers: dict[str, str] = {}
    for position, pair in enumerate((text or "").split(","), 1):
        if not pair.strip():
            continue
        name, separator, value = pair.partition("=")
        if not separator or not name.strip():
            # Not the pair itself: it may be a secret that its name, or a comma inside, has been left out of.
            _logger.warning(
                "%s: pair %d is ignored: this should be name=value; pairs are separated by commas, and a comma in a "
                "value is written %%2C",
                variable,
                position,
            )
            continue
        headers[name.strip().lower()] = unquote(value.strip())
    return headers


def _file(name: str) -> str | None:
    variable, path = _read(name)
    if path is not None and not os.access(path, os.R_OK):
        raise ConfigurationError(f"{variable}={path!r}: there is no such file, or it can't be read")
    return path
