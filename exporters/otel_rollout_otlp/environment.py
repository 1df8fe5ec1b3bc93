"""The settings of an OTLP exporter from OpenTelemetry's environment variables, and where to look for its trajectories.

Source: https://opentelemetry.io/docs/specs/otel/protocol/exporter/
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from otel_rollout.errors import ConfigurationError
from otel_rollout.export.http import shown_url
from otel_rollout.export.otlp_http import read_headers
from otel_rollout.guard.safe_logger import SafeLogger
from otel_rollout.settings import Setting, one_of, read_seconds, read_text

_logger = SafeLogger()

TRACES_PATH: Final = "v1/traces"


def _row(name: str, read: Callable[[Any], Any], default: Any, meaning: str, argument: str = "") -> Setting:
    """Return the setting of one of OTLP's variables: the one for traces precedes the one for all signals."""
    variable = f"OTEL_EXPORTER_OTLP_{name}"
    return Setting(variable.replace("OTLP", "OTLP_TRACES"), read, default, meaning, argument, instead=variable)


ENDPOINT: Final = _row(
    "ENDPOINT", read_text, None, "the address; over HTTP, `/v1/traces` is added to the one for all signals", "endpoint"
)
HEADERS: Final = _row("HEADERS", str, None, "`key=value,key=value`", "headers")
TIMEOUT: Final = _row("TIMEOUT", read_seconds, 10.0, "seconds for one request in all", "timeout")
COMPRESSION: Final = _row("COMPRESSION", one_of("none", "gzip", "deflate"), "none", "`none`, `gzip` or `deflate`")
CERTIFICATE: Final = _row("CERTIFICATE", read_text, None, "a file of trusted certificates")
CLIENT_CERTIFICATE: Final = _row("CLIENT_CERTIFICATE", read_text, None, "a file with our own certificate")
CLIENT_KEY: Final = _row("CLIENT_KEY", read_text, None, "a file with the key of our own certificate")
INSECURE: Final = _row("INSECURE", one_of("true", "false"), "false", "`true`: gRPC without TLS to a `host:port`")
SETTINGS: Final = (ENDPOINT, HEADERS, TIMEOUT, COMPRESSION, CERTIFICATE, CLIENT_CERTIFICATE, CLIENT_KEY, INSECURE)


@dataclass(frozen=True)
class OtlpEnvironment:
    """The settings of one OTLP exporter; an auth or configuration error may come from those in `what_to_check`."""

    endpoint: str
    what_to_check: str
    headers: dict[str, str]
    timeout: float
    compression: str
    certificate: str | None
    client_certificate: str | None
    client_key: str | None
    is_insecure: bool


def read_environment(*, is_grpc: bool, endpoint: str | None = None, timeout: float | None = None) -> OtlpEnvironment:
    """Read the environment.

    An invalid number, name or header is ignored, as in the SDK.

    Args:
        is_grpc: The protocol is gRPC, whose endpoint has no path.
        endpoint: The endpoint in place of the environment's: the base URL, or the whole one with `/v1/traces`.
        timeout: Seconds for a request, in place of the environment's.

    Raises:
        ConfigurationError: An endpoint is no URL, or a certificate's file can't be read.
    """
    given, variable, _ = ENDPOINT.find() if endpoint is None else (endpoint.strip(), "endpoint", ())
    variable, endpoint = variable or ENDPOINT.instead, given
    if endpoint is None:
        endpoint = "http://localhost:4317" if is_grpc else f"http://localhost:4318/{TRACES_PATH}"
    elif not is_grpc and variable != ENDPOINT.variable:
        endpoint = _with_traces_path(variable, endpoint)
    parts = urlsplit(endpoint)
    has_scheme = parts.scheme in ("http", "https") and bool(parts.netloc)
    is_host_and_port = is_grpc and not has_scheme and "://" not in endpoint and bool(endpoint)
    if not has_scheme and not is_host_and_port:
        right = "a URL such as http://localhost:4317" if is_grpc else "a URL such as http://localhost:4318"
        raise ConfigurationError(f"{variable}={shown_url(given or endpoint)!r}: this should be {right}")
    return OtlpEnvironment(
        endpoint=endpoint,
        what_to_check=_what_to_check(variable, endpoint, is_grpc=is_grpc),
        headers=read_headers(HEADERS),
        timeout=TIMEOUT.value(timeout),
        compression=COMPRESSION.value(),
        certificate=_file(CERTIFICATE),
        client_certificate=_file(CLIENT_CERTIFICATE),
        client_key=_file(CLIENT_KEY),
        is_insecure=parts.scheme == "http" or (is_host_and_port and INSECURE.value() == "true"),
    )


def _with_traces_path(variable: str, endpoint: str) -> str:
    """Return the whole URL for a base URL; one that is whole already stays, with a warning if a variable has it."""
    base = endpoint.rstrip("/")
    if not base.endswith(f"/{TRACES_PATH}"):
        return f"{base}/{TRACES_PATH}"
    if variable != "endpoint":
        _logger.warning(
            "%s=%r has the path /v1/traces, which is added to this variable: it is taken as the whole URL, whose "
            "variable is %s",
            variable,
            shown_url(endpoint),
            ENDPOINT.variable,
        )
    return base


def _what_to_check(variable: str, endpoint: str, *, is_grpc: bool) -> str:
    headers = HEADERS.instead
    if variable == "endpoint":
        return f"check endpoint, headers and {headers}"
    if is_grpc or variable != ENDPOINT.variable or endpoint.rstrip("/").endswith(f"/{TRACES_PATH}"):
        return f"check {variable} and {headers}"
    return f"no path is added to {variable}, and most receivers take traces at /{TRACES_PATH}: check it and {headers}"


def _file(row: Setting) -> str | None:
    found = row.find()
    if found.value is not None and not os.access(found.value, os.R_OK):
        raise ConfigurationError(f"{found.variable}={found.value!r}: there is no such file, or it can't be read")
    return None if found.value is None else str(found.value)


NO_WAY: Final = "OTLP has no way to ask a receiver what it has; for a Phoenix, the backend `phoenix` has one"


def where_to_look(endpoint: str, project_name: str) -> list[str]:
    """Return lines of text on how to find the trajectories that were sent to an endpoint."""
    return [
        f"The trajectories went to {shown_url(endpoint)} as project {project_name}.",
        "The root spans carry rollout.step, rollout.sample_index, rollout.reward and session.id, the same for all",
        "rollouts of one prompt.",
    ]
