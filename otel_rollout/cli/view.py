"""`otel-rollout view`: the local web pages of a run."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from typing import TYPE_CHECKING, Final

from otel_rollout.cli.messages import complain
from otel_rollout.errors import MissingExtraError
from otel_rollout.guard.garbage_collection import collect_rarely
from otel_rollout.installing import install_line
from otel_rollout.text.plain_text import counted, size

if TYPE_CHECKING:
    from otel_rollout.look.view.run_state import RunState

__all__ = ["require_server", "run"]

PAGE: Final = "index.html"


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    require_server()
    collect_rarely()
    if arguments.export is not None:
        return _export(arguments)
    if arguments.step is not None:
        complain("otel-rollout view: --step is for --export; the page of a step is #/step/N")
        return 2
    try:
        _serve(arguments)
    except KeyboardInterrupt:
        sys.stdout.flush()
        # At once: threads may be in the middle of a large folder.
        os._exit(130)
    return 0


def require_server() -> None:
    """Check that the server and what it reads with are installed.

    Raises:
        MissingExtraError: They are not.
    """
    packages = ("rich", "starlette", "uvicorn", "zstandard")
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        raise MissingExtraError(f"this needs {' and '.join(missing)}: {install_line('view')}")


def _state_of(arguments: argparse.Namespace) -> RunState:
    from otel_rollout.look.view.run_state import RunState

    return RunState(arguments.folders, experiment=arguments.experiment, run=arguments.run)


def _export(arguments: argparse.Namespace) -> int:
    from rich import progress
    from rich.console import Console

    from otel_rollout.look.view.application import STATIC
    from otel_rollout.look.view.export import export_run

    state = _state_of(arguments)
    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(bar_width=28),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(compact=True),
    )
    console = Console(stderr=True)
    with progress.Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task("trajectories", total=None)
        exported = export_run(
            state,
            STATIC,
            arguments.export,
            arguments.step,
            on_progress=lambda done, total: bars.update(task, completed=done, total=total),
        )
    for problem in state.problems():
        complain(problem)
    trajectories = counted(exported.trajectories, "trajectory")
    counts = f"{counted(exported.steps, 'step')}, {trajectories}, {size(exported.bytes)}"
    print(f"{counts}: open it in a browser\n\n    {(arguments.export / PAGE).resolve().as_uri()}")
    return 0


def _serve(arguments: argparse.Namespace) -> None:
    from otel_rollout.look.view.access import LOOPBACK, new_token
    from otel_rollout.look.view.application import make_application
    from otel_rollout.look.view.server import listen, open_browser, serve, url_of

    token = new_token()
    listener = listen(arguments.host, arguments.port)
    application = make_application(_state_of(arguments), token, [arguments.host, *arguments.allow_host])
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
