"""`otel-rollout view`: the local web pages of a run."""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from otel_rollout.cli.messages import complain
from otel_rollout.cli.options import add_run, add_steps, add_trace, default_folder, exit_codes, host, port
from otel_rollout.errors import MissingExtraError, NoTracesError
from otel_rollout.installing import install_line
from otel_rollout.text.plain_text import counted, size

if TYPE_CHECKING:
    from otel_rollout.look.view.run_state import RunState

PAGE: Final = "index.html"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the description and the options of the command."""
    parser.description = """\
Serve the pages of one or more trace folders on this machine, and open them in
a browser: the steps of the run, the groups of a step with the rollouts of a
prompt side by side, each trajectory with its spans, timelines, search. They
change while training writes; a folder that does not exist yet is waited for.
A file of OTLP JSON, such as one of show --json, has the same pages.

The address has a random token, without which nothing is shown.
"""
    parser.epilog = exit_codes("the pages are exported", interrupted="interrupted: the end of serving")
    parser.add_argument(
        "folders",
        metavar="DIR",
        nargs="*",
        type=Path,
        default=[default_folder()],
        help="trace folders, spools, or files of OTLP JSON (default: OTEL_ROLLOUT_DIR, else rollout-traces)",
    )
    add_run(parser)
    parser.add_argument("--port", type=port, metavar="N", help="the port (default: 8642, or the next free one)")
    parser.add_argument(
        "--host", type=host, default="127.0.0.1", metavar="NAME", help="the interface (default: 127.0.0.1)"
    )
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name that the pages are opened by, behind a proxy: hub.example.com",
    )
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    export = parser.add_argument_group("export")
    export.add_argument(
        "--export", type=Path, metavar="OUT", help="write the same pages into a folder, to be opened from the disk"
    )
    add_steps(export)
    add_trace(export)


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    require_server()
    if arguments.export is not None:
        return _export(arguments)
    if arguments.step is not None or arguments.trace is not None:
        option = "--step is for --export; the page of a step is #/step/N"
        complain(f"otel-rollout view: {option if arguments.step is not None else '--trace is for --export'}")
        return 2
    try:
        _serve(arguments)
    except KeyboardInterrupt:
        sys.stdout.flush()
        # Don't wait for threads, which may be in the middle of a large folder.
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
    if arguments.trace is None:
        return _export_state(arguments, _state_of(arguments))
    from otel_rollout.catalog import Run

    run = Run(arguments.folders, experiment=arguments.experiment, run=arguments.run)
    found = list(itertools.islice(run.read(arguments.trace, step=arguments.step), 2))
    if len(found) != 1:
        what = "several trajectories have ids that begin with" if found else "no trajectory has the id"
        raise NoTracesError(f"{what} {arguments.trace}")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{found[0].trace_id}.jsonl"
        file.write_bytes(found[0].otlp_json() + b"\n")
        state = _state_of(argparse.Namespace(folders=[file], experiment=None, run=None))
        # The pages name the run's folders, and so do their commands.
        state.folders = arguments.folders
        return _export_state(arguments, state)


def _export_state(arguments: argparse.Namespace, state: RunState) -> int:
    from rich import progress
    from rich.console import Console

    from otel_rollout.look.view.application import STATIC
    from otel_rollout.look.view.export import export_run

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
    redacted = f"{counted(exported.redacted, 'secret')} replaced"
    counts = f"{counted(exported.steps, 'step')}, {trajectories}, {redacted}, {size(exported.bytes)}"
    print(f"{counts}: open it in a browser\n\n    {(arguments.export / PAGE).resolve().as_uri()}")
    return 0


def _serve(arguments: argparse.Namespace) -> None:
    from otel_rollout.look.view.access import LOOPBACK, new_token
    from otel_rollout.look.view.application import make_application
    from otel_rollout.look.view.server import listen, names_of, open_browser, serve, url_of

    token = new_token()
    listener = listen(arguments.host, arguments.port)
    application = make_application(_state_of(arguments), token, [*names_of(arguments.host), *arguments.allow_host])
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
