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

__all__ = ["VARIABLES", "WORKSPACE", "Credentials", "read_credentials"]

USERNAME = "MLFLOW_TRACKING_USERNAME"
PASSWORD = "MLFLOW_TRACKING_PASSWORD"  # noqa: S105 - the name of a variable
TOKEN = "MLFLOW_TRACKING_TOKEN"  # noqa: S105 - the name of a variable
INSECURE_TLS = "MLFLOW_TRACKING_INSECURE_TLS"
SERVER_CERTIFICATE = "MLFLOW_TRACKING_SERVER_CERT_PATH"
CLIENT_CERTIFICATE = "MLFLOW_TRACKING_CLIENT_CERT_PATH"
WORKSPACE = "MLFLOW_WORKSPACE"
_UNSUPPORTED = ("MLFLOW_TRACKING_AUTH", "MLFLOW_TRACKING_AWS_SIGV4")

VARIABLES = {
    USERNAME: "the user name at a server",
    PASSWORD: "the password",
    TOKEN: "a token instead of user name and password",
    INSECURE_TLS: "`true`: don't check the server's certificate",
    SERVER_CERTIFICATE: "a file of trusted certificates",
    CLIENT_CERTIFICATE: "a file with the client certificate",
    WORKSPACE: "the workspace of a server that has several",
}


@dataclass(frozen=True)
class Credentials:
    """Credentials of each request.

    Args:
        headers: Headers of each request.
        verify: Check the server's certificate; or a file of trusted certificates.
        certificate: A file with the client certificate.
        fault: The error in the settings; empty if there is none.
    """

    headers: Mapping[str, str] = field(default_factory=dict)
    verify: bool | str = True
    certificate: str | None = None
    fault: str = ""


def read_credentials(environment: Mapping[str, str] | None = None, home: Path | None = None) -> Credentials:
    """Return the credentials from the environment, else from ~/.mlflow/credentials; both can be replaced."""
    given = os.environ if environment is None else environment
    stored = _stored(home)
    username = given.get(USERNAME) or stored.get(USERNAME.lower())
    password = given.get(PASSWORD) or stored.get(PASSWORD.lower())
    headers = {}
    if username and password:
        pair = base64.b64encode(f"{username}:{password}".encode()).decode()
        headers["Authorization"] = f"Basic {pair}"
    elif given.get(TOKEN):
        headers["Authorization"] = f"Bearer {given[TOKEN]}"
    if given.get(WORKSPACE):
        headers["X-MLFLOW-WORKSPACE"] = given[WORKSPACE]
    is_insecure = given.get(INSECURE_TLS, "").strip().lower() in ("true", "1")
    bundle = given.get(SERVER_CERTIFICATE) or None
    fault = ""
    if is_insecure and bundle:
        fault = f"{INSECURE_TLS} and {SERVER_CERTIFICATE} contradict each other: set one of them"
    for name in _UNSUPPORTED:
        if given.get(name, "").strip().lower() not in ("", "false", "0"):
            fault = f"{name} is not supported: use {USERNAME} and {PASSWORD}, or {TOKEN}"
    return Credentials(
        headers=headers,
        verify=bundle or not is_insecure,
        certificate=given.get(CLIENT_CERTIFICATE) or None,
        fault=fault,
    )


def _stored(home: Path | None) -> Mapping[str, str]:
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read((home or Path.home()) / ".mlflow" / "credentials")
    except (OSError, RuntimeError, UnicodeDecodeError, configparser.Error):
        return {}
    return dict(parser["mlflow"]) if parser.has_section("mlflow") else {}
