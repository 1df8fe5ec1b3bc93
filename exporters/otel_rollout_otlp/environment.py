"""The settings of an OTLP exporter from OpenTelemetry's environment variables, and where to look for its trajectories.

Source: https://opentelemetry.io/docs/specs/otel/protocol/exporter/
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from otel_rollout.errors import ConfigurationError
from otel_rollout.export.http import shown_url
from otel_rollout.export.otlp_http import read_headers
from otel_rollout.guard.background_log import BackgroundLogger
from otel_rollout.settings import Setting, read_variables

_logger = BackgroundLogger()

DEFAULT_TIMEOUT: Final = 10.0
DEFAULT_HTTP_ENDPOINT: Final = "http://localhost:4318"
DEFAULT_GRPC_ENDPOINT: Final = "http://localhost:4317"
TRACES_PATH: Final = "v1/traces"
FOR_TRACES: Final = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
"""The variable with the whole URL, to which no path is added."""
COMPRESSIONS: Final = ("none", "gzip", "deflate")


@dataclass(frozen=True)
class OtlpEnvironment:
    """The settings of one OTLP exporter.

    Args:
        endpoint: The full URL.
        what_to_check: The settings that an auth or configuration error may come from.
        headers: Sent with each request.
        timeout: Seconds for a request.
        compression: `none`, `gzip` or `deflate`.
        certificate: A file of trusted certificates.
        client_certificate: A file with the client certificate.
        client_key: A file with its key.
        is_insecure: Use gRPC without TLS.
    """

    endpoint: str
    what_to_check: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    timeout: float = 10.0
    compression: str = "none"
    certificate: str | None = None
    client_certificate: str | None = None
    client_key: str | None = None
    is_insecure: bool = False


def read_environment(*, is_grpc: bool, endpoint: str | None = None) -> OtlpEnvironment:
    """Read the environment; a variable for traces precedes the one for all signals.

    An invalid number, name or header is ignored, as in the SDK.

    Args:
        is_grpc: The protocol is gRPC, whose endpoint has no path.
        endpoint: The endpoint in place of the environment's: the base URL, or the whole one with `/v1/traces`.

    Raises:
        ConfigurationError: An endpoint is no URL, or a certificate's file can't be read.
    """
    variable, given = ("endpoint", endpoint.strip()) if endpoint is not None else _read("ENDPOINT")
    endpoint = given
    if endpoint is None:
        endpoint = DEFAULT_GRPC_ENDPOINT if is_grpc else f"{DEFAULT_HTTP_ENDPOINT}/{TRACES_PATH}"
    elif not is_grpc and variable != FOR_TRACES:
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
        headers=read_headers(*_read("HEADERS")),
        timeout=_read_valid("TIMEOUT", _seconds, DEFAULT_TIMEOUT),
        compression=_read_valid("COMPRESSION", _compression, "none"),
        certificate=_file("CERTIFICATE"),
        client_certificate=_file("CLIENT_CERTIFICATE"),
        client_key=_file("CLIENT_KEY"),
        is_insecure=parts.scheme == "http" or (is_host_and_port and _read_valid("INSECURE", _boolean, default=False)),
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
            FOR_TRACES,
        )
    return base


def _what_to_check(variable: str, endpoint: str, *, is_grpc: bool) -> str:
    headers = "OTEL_EXPORTER_OTLP_HEADERS"
    if variable == "endpoint":
        return f"check endpoint, headers and {headers}"
    if is_grpc or variable != FOR_TRACES or endpoint.rstrip("/").endswith(f"/{TRACES_PATH}"):
        return f"check {variable} and {headers}"
    return f"no path is added to {variable}, and most receivers take traces at /{TRACES_PATH}: check it and {headers}"


def _variables(name: str) -> tuple[str, str]:
    return f"OTEL_EXPORTER_OTLP_TRACES_{name}", f"OTEL_EXPORTER_OTLP_{name}"


def _read(name: str) -> tuple[str, str | None]:
    """Return the variable that sets `name` and its text; None as the text if none does."""
    given = [(variable, os.environ.get(variable, "").strip() or None) for variable in _variables(name)]
    return next((pair for pair in given if pair[1]), given[-1])


def _read_valid(name: str, read: Callable[[str], Any], default: Any) -> Any:
    """Return the value of the first valid variable for `name`; warn of each invalid one."""
    value, ignored = read_variables(Setting(name, _variables(name), read, default, meaning=""), os.environ)
    for reason in ignored:
        _logger.warning(reason)
    return value


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ValueError("a positive number of seconds")
    return seconds


def _compression(text: str) -> str:
    return _choice(text, COMPRESSIONS, f"one of {', '.join(COMPRESSIONS)}")


def _boolean(text: str) -> bool:
    return _choice(text, ("true", "false"), "true or false") == "true"


def _choice(text: str, choices: Sequence[str], right: str) -> str:
    choice = text.strip().lower()
    if choice not in choices:
        raise ValueError(right)
    return choice


def _file(name: str) -> str | None:
    variable, path = _read(name)
    if path is not None and not os.access(path, os.R_OK):
        raise ConfigurationError(f"{variable}={path!r}: there is no such file, or it can't be read")
    return path


NO_WAY: Final = "OTLP has no way to ask a receiver what it has; for a Phoenix, the backend `phoenix` has one"


def where_to_look(endpoint: str, project_name: str) -> list[str]:
    """Return lines of text on how to find trajectories.

    Args:
        endpoint: The endpoint that they were sent to.
        project_name: Their project.
    """
    return [
        f"The trajectories went to {shown_url(endpoint)} as project {project_name}.",
        "The root spans carry rollout.step, rollout.sample_index, rollout.reward and session.id, the same for all",
        "rollouts of one prompt.",
    ]
