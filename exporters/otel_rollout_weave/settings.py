"""The servers, credentials and W&B run, from the environment and files that weave and wandb read.

Source: https://docs.wandb.ai/weave/reference/python-sdk and weave 0.54's `trace/env.py`.
"""

from __future__ import annotations

import base64
import configparser
import netrc
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from otel_rollout.guard.log_once import warn_once
from otel_rollout.guard.safe_logger import SafeLogger
from otel_rollout.settings import Setting, read_bool, read_seconds, read_text

_logger = SafeLogger(__name__)

PUBLIC_API: Final = "https://api.wandb.ai"
PUBLIC_TRACE_SERVER: Final = "https://trace.wandb.ai"

API_KEY: Final = Setting("WANDB_API_KEY", str, None, "the key; unset: the key of `wandb login`", "api_key")
ENTITY: Final = Setting("WANDB_ENTITY", read_text, None, "the team or user; unset: the key's default", "entity")
PROJECT: Final = Setting("WANDB_PROJECT", read_text, None, "the project of spans that name none", "project")
RUN_ID: Final = Setting("WANDB_RUN_ID", read_text, None, "the run that calls belong to, if no run is open in wandb")
BASE_URL: Final = Setting(
    "WANDB_BASE_URL", read_text, None, "the W&B server; unset: the host of `wandb login`", "base_url"
)
PUBLIC_BASE_URL: Final = Setting("WANDB_PUBLIC_BASE_URL", read_text, None, "its public URL, if that is another")
CONFIG_DIR: Final = Setting("WANDB_CONFIG_DIR", read_text, None, "the folder of wandb's settings")
TRACE_SERVER_URL: Final = Setting(
    "WF_TRACE_SERVER_URL", read_text, None, "the trace server; unset: the W&B server's", "trace_server_url"
)
# The server takes about a second per MB of numbers.
TIMEOUT: Final = Setting("WEAVE_HTTP_TIMEOUT", read_seconds, 90.0, "seconds for a request", "timeout")
INSECURE: Final = Setting(
    "WEAVE_INSECURE_DISABLE_SSL", read_bool, False, "`true`: don't check the server's certificate"
)
IDS_AS_TEXT: Final = Setting(
    "OTEL_ROLLOUT_WEAVE_IDS_AS_TEXT", read_bool, False, "`true`: long lists of integers as texts", "ids_as_text"
)
ASK_FIRST: Final = Setting(
    "OTEL_ROLLOUT_WEAVE_ASK_FIRST",
    read_bool,
    False,
    "`true`: ask before each batch which calls are stored",
    "ask_first",
)
SETTINGS: Final = (
    *(API_KEY, ENTITY, PROJECT, RUN_ID, BASE_URL, PUBLIC_BASE_URL, CONFIG_DIR, TRACE_SERVER_URL, TIMEOUT),
    *(INSECURE, IDS_AS_TEXT, ASK_FIRST),
)

CREDENTIALS_HINT: Final = (
    "set WANDB_API_KEY to a key from https://wandb.ai/authorize, or run `wandb login` "
    "(another server: WANDB_BASE_URL, WF_TRACE_SERVER_URL; another team: WANDB_ENTITY)"
)


@dataclass(frozen=True)
class WeaveSettings:
    """The servers and credentials.

    Args:
        api_url: The W&B API, for projects and entities.
        trace_server_url: The trace server, for calls.
        api_key: The API key; None if there is none yet.
        entity: The team or user of projects that name none; None for the key's default.
        verify: Check the server's certificate.
        timeout: Seconds for a request.
    """

    api_url: str
    trace_server_url: str
    api_key: str | None
    entity: str | None
    verify: bool
    timeout: float

    @property
    def headers(self) -> dict[str, str]:
        """The headers of each request."""
        credentials = base64.b64encode(f"api:{self.api_key}".encode()).decode()
        return {"Authorization": f"Basic {credentials}", "User-Agent": "otel-rollout"}


def read_settings(
    *,
    api_key: str | None = None,
    base_url: str | None = None,
    trace_server_url: str | None = None,
    entity: str | None = None,
    timeout: float | None = None,
    environment: Mapping[str, str] | None = None,
) -> WeaveSettings:
    """Return each setting: the argument, else `environment` (the process's own if None), else wandb's files."""
    given = os.environ if environment is None else environment
    api_url = (BASE_URL.value(base_url, given) or _base_url_of_files(given)).rstrip("/")
    # A server with another public URL takes calls there.
    public_url = (PUBLIC_BASE_URL.value(base_url, given) or api_url).rstrip("/")
    default = PUBLIC_TRACE_SERVER if public_url == PUBLIC_API else f"{public_url}/traces"
    return WeaveSettings(
        api_url=api_url,
        trace_server_url=(TRACE_SERVER_URL.value(trace_server_url, given) or default).rstrip("/"),
        api_key=API_KEY.value(api_key, given) or _key_of_netrc(api_url, given),
        entity=ENTITY.value(entity, given),
        verify=not INSECURE.value(environ=given),
        timeout=TIMEOUT.value(timeout, given),
    )


def run_of_process(project_id: str, environment: Mapping[str, str] | None = None) -> str | None:
    """Return `entity/project/run` of the active run; None if there is none in this project.

    A run of another project is left out: Weave shows calls with a run only if both are in one project.
    """
    given = os.environ if environment is None else environment
    # A trainer that logs to W&B has imported wandb; importing it here would take seconds.
    run = getattr(sys.modules.get("wandb"), "run", None)
    entity, project = project_id.split("/")
    if run is not None:
        run_id, run_entity, run_project = run.id, run.entity or entity, run.project or project
    else:
        # Worker processes inherit the run from the trainer's environment.
        run_id = RUN_ID.value(environ=given)
        run_entity, run_project = ENTITY.value(environ=given) or entity, PROJECT.value(environ=given) or project
    if not run_id or "/" in run_id or ":" in run_id:
        return None
    if (run_entity, run_project) != (entity, project):
        run = f"{run_entity}/{run_project}/{run_id}"
        warn_once(
            f"W&B run {run} {project_id}",
            "the W&B run %s is in another project than Weave's %s, so calls are not associated with it; "
            "use the same entity and project for both",
            run,
            project_id,
        )
        return None
    return f"{project_id}/{run_id}"


def _home(given: Mapping[str, str]) -> Path:
    return Path(given.get("HOME") or Path.home())


def _base_url_of_files(given: Mapping[str, str]) -> str:
    # `wandb login --host` writes the host here.
    folder = Path(CONFIG_DIR.value(environ=given) or _home(given) / ".config" / "wandb")
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read([folder / "settings", Path("wandb") / "settings"])
        return parser.get("default", "base_url", fallback=PUBLIC_API)
    except (configparser.Error, OSError, UnicodeDecodeError) as error:
        _logger.warning("wandb's settings can't be read (%s); using %s", error, PUBLIC_API)
        return PUBLIC_API


def _key_of_netrc(api_url: str, given: Mapping[str, str]) -> str | None:
    for path in (_home(given) / ".netrc", _home(given) / "_netrc"):
        try:
            entry = netrc.netrc(str(path)).authenticators(urlsplit(api_url).netloc)
        except FileNotFoundError:
            continue
        except (netrc.NetrcParseError, OSError, UnicodeDecodeError) as error:
            _logger.warning("%s can't be read: %s", path, error)
            continue
        if entry is not None and entry[2]:
            return entry[2]
    return None
