"""`otel-rollout view`: the local web pages of a run."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys

from otel_rollout.errors import MissingExtraError
from otel_rollout.installing import install_line

__all__ = ["run"]


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    packages = ("rich", "starlette", "uvicorn", "zstandard")
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        raise MissingExtraError(f"this needs {' and '.join(missing)}: {install_line('view')}")
    try:
        _serve(arguments)
    except KeyboardInterrupt:
        sys.stdout.flush()
        # At once: threads may be in the middle of a large folder.
        os._exit(130)
    return 0


def _serve(arguments: argparse.Namespace) -> None:
    from otel_rollout.view.access import LOOPBACK, new_token
    from otel_rollout.view.application import make_application
    from otel_rollout.view.run_state import RunState
    from otel_rollout.view.server import listen, open_browser, serve, url_of

    token = new_token()
    listener = listen(arguments.host, arguments.port)
    application = make_application(RunState(arguments.folders), token, [arguments.host, *arguments.allow_host])
    url = url_of(listener, arguments.host, token)
    folders = ", ".join(map(str, arguments.folders))

    def started() -> None:
        print(f"otel-rollout view of {folders}\n\n    {url}\n")
        if arguments.host not in LOOPBACK:
            print("Other machines reach it too: who has this address, with its token, can read all traces.")
        print("Ctrl-C ends it.", flush=True)
        if not arguments.no_browser:
            open_browser(url_of(listener, arguments.host, application.token_for_once()))

    serve(application, listener, started)
