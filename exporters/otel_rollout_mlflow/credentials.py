"""The credentials of a tracking server, read as mlflow itself reads them.

Source: https://mlflow.org/docs/latest/self-hosting/security/basic-http-auth/ and mlflow's environment variables.
"""

from __future__ import annotations

import base64
import configparser
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from otel_rollout.settings import Setting, read_bool, read_text

USERNAME: Final = Setting("MLFLOW_TRACKING_USERNAME", str, None, "the user name; unset: `~/.mlflow/credentials`")
PASSWORD: Final = Setting("MLFLOW_TRACKING_PASSWORD", str, None, "the password; unset: `~/.mlflow/credentials`")
TOKEN: Final = Setting("MLFLOW_TRACKING_TOKEN", str, None, "a token instead of user name and password")
INSECURE_TLS: Final = Setting(
    "MLFLOW_TRACKING_INSECURE_TLS", read_bool, False, "`true`: don't check the server's certificate"
)
SERVER_CERTIFICATE: Final = Setting(
    "MLFLOW_TRACKING_SERVER_CERT_PATH", read_text, None, "a file of trusted certificates"
)
CLIENT_CERTIFICATE: Final = Setting(
    "MLFLOW_TRACKING_CLIENT_CERT_PATH", read_text, None, "a file with the client certificate"
)
WORKSPACE: Final = Setting("MLFLOW_WORKSPACE", read_text, None, "the workspace of a server that has several")
SETTINGS: Final = (USERNAME, PASSWORD, TOKEN, INSECURE_TLS, SERVER_CERTIFICATE, CLIENT_CERTIFICATE, WORKSPACE)
_UNSUPPORTED: Final = ("MLFLOW_TRACKING_AUTH", "MLFLOW_TRACKING_AWS_SIGV4")


@dataclass(frozen=True)
class Credentials:
    """Credentials of each request; `fault` is the error in the settings, empty if there is none."""

    headers: Mapping[str, str] = field(default_factory=dict)
    verify: bool | str = True
    certificate: str | None = None
    fault: str = ""


def read_credentials(environment: Mapping[str, str] | None = None, home: Path | None = None) -> Credentials:
    """Return the credentials from the environment, else from ~/.mlflow/credentials; both can be replaced."""
    given = os.environ if environment is None else environment
    stored = _stored(home)
    username = USERNAME.value(environ=given) or stored.get("mlflow_tracking_username")
    password = PASSWORD.value(environ=given) or stored.get("mlflow_tracking_password")
    headers = {}
    if username and password:
        pair = base64.b64encode(f"{username}:{password}".encode()).decode()
        headers["Authorization"] = f"Basic {pair}"
    elif token := TOKEN.value(environ=given):
        headers["Authorization"] = f"Bearer {token}"
    if workspace := WORKSPACE.value(environ=given):
        headers["X-MLFLOW-WORKSPACE"] = workspace
    is_insecure = INSECURE_TLS.value(environ=given)
    bundle = SERVER_CERTIFICATE.value(environ=given)
    fault = ""
    if is_insecure and bundle:
        fault = f"{INSECURE_TLS} and {SERVER_CERTIFICATE} contradict each other: set one of them"
    for name in _UNSUPPORTED:
        if given.get(name, "").strip().lower() not in ("", "false", "0"):
            fault = f"{name} is not supported: use {USERNAME} and {PASSWORD}, or {TOKEN}"
    return Credentials(
        headers=headers,
        verify=bundle or not is_insecure,
        certificate=CLIENT_CERTIFICATE.value(environ=given),
        fault=fault,
    )


def _stored(home: Path | None) -> Mapping[str, str]:
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read((home or Path.home()) / ".mlflow" / "credentials")
    except (OSError, RuntimeError, UnicodeDecodeError, configparser.Error):
        return {}
    return dict(parser["mlflow"]) if parser.has_section("mlflow") else {}
