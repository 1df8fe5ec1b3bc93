"""The options and help of commands that read trace folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from otel_rollout.cli.argument_types import host, port, threshold, trace_id
from otel_rollout.cli.shared_options import (
    add_command,
    add_filters,
    add_folder,
    add_run,
    add_steps,
    default_folder,
    exit_codes,
)

__all__ = ["add_diagnose", "add_ls", "add_show", "add_stats", "add_top", "add_view"]

_READ: Final = "the trace folder, a spool, or a file of OTLP JSON"


def add_ls(commands: Any) -> None:
    """Add the command `ls`."""
    parser = add_command(
        commands,
        "ls",
        "list a trace folder by step, the trajectories of a step, or the rollouts of a prompt",
        """\
List a trace folder by experiment and training step; with --step, the
trajectories of that step; with --sample, the rollouts of a prompt side by side,
with their answers, rewards and advantages.
""",
        exit_codes("shown, also if nothing matches"),
    )
    add_folder(parser, _READ)
    add_filters(parser)
    parser.add_argument("--sort", metavar="COLUMN", help="sort the rows by a column, such as reward or duration")
    parser.add_argument("--reverse", action="store_true", help="with --sort: the highest first")
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="a JSON object on a line of its own for each row")
    forms.add_argument(
        "--perfetto",
        metavar="FILE",
        type=Path,
        help="write when each span ran into FILE, for ui.perfetto.dev and chrome://tracing",
    )


def add_show(commands: Any) -> None:
    """Add the command `show`."""
    parser = add_command(
        commands,
        "show",
        "show one trajectory of a trace folder: as a tree, or as a conversation",
        """\
Show one trajectory as a tree of its spans: kind, duration, when each ran, input
and output; or with --chat as a conversation. Name it by --step, --sample and
--rollout (and --experiment, if the folder has several), or by --trace.
""",
        exit_codes("shown"),
    )
    add_folder(parser, _READ)
    parser.add_argument("--trace", metavar="ID", type=trace_id, help="its trace id; the beginning will do")
    add_filters(parser)
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--chat", action="store_true", help="the conversation: who said what, tool calls, the reward")
    forms.add_argument("--full", action="store_true", help="whole payloads, all attributes and events")
    forms.add_argument("--json", action="store_true", help="one line of OTLP JSON, as any OTLP receiver takes it")


def add_stats(commands: Any) -> None:
    """Add the command `stats`."""
    parser = add_command(
        commands,
        "stats",
        "count what a trace folder holds",
        """\
Count what a trace folder holds: trajectories, spans, and bytes as OTLP and
on disk, in each step and altogether; who wrote it, what is open, what is torn.
""",
        exit_codes("shown"),
    )
    add_folder(parser, _READ)
    add_run(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object")


def add_diagnose(commands: Any) -> None:
    """Add the command `diagnose`."""
    parser = add_command(
        commands,
        "diagnose",
        "find what is wrong with a run, with the trajectories that prove it",
        """\
Check a trace folder: groups without signal, truncation, tools that fail,
failures that the model isn't to blame for, duplicates, prefix breaks, parts of
the reward that are hacked, stragglers, stale weights, lost spans. Each finding
has its threshold, what it means, what to try, and trajectories that prove it.
""",
        exit_codes("nothing is above its threshold", failed="something is"),
    )
    add_folder(parser, _READ)
    add_steps(parser)
    add_run(parser)
    parser.add_argument(
        "--against", metavar="STEP|DIR", help="compare with a step of this folder, or with another folder"
    )
    parser.add_argument(
        "--threshold",
        action="append",
        default=[],
        type=threshold,
        metavar="NAME=VALUE",
        help="another threshold of a check, such as truncated=0.05; may be given more than once",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def add_view(commands: Any) -> None:
    """Add the command `view`."""
    parser = add_command(
        commands,
        "view",
        "open a run in a browser: steps, groups, trajectories, timelines, search",
        """\
Serve the pages of one or more trace folders on this machine, and open them in
a browser: the steps of the run, the groups of a step with the rollouts of a
prompt side by side, each trajectory with its spans, timelines, search. They
change while training writes; a folder that does not exist yet is waited for.
A file of OTLP JSON, such as one of show --json, has the same pages.

The address has a random token, without which nothing is shown.
""",
        exit_codes("the pages are exported", interrupted="interrupted: the end of serving"),
    )
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


def add_top(commands: Any) -> None:
    """Add the command `top`."""
    parser = add_command(
        commands,
        "top",
        "show the trajectories that run now, and what a step waits for",
        """\
Show the trajectories that run for longer than 3 s, the longest first: in which
op each is, for how long, and how long 99% of such ops took. After a crash, show
what was open. The exporter `file` writes that into the trace folder every two
seconds; no other exporter does. On a terminal it goes on until Ctrl-C.
""",
        exit_codes("shown"),
    )
    parser.add_argument(
        "folders",
        metavar="DIR",
        nargs="*",
        type=Path,
        default=[default_folder()],
        help="trace folders (default: OTEL_ROLLOUT_DIR, else rollout-traces)",
    )
    add_run(parser)
    parser.add_argument("--once", action="store_true", help="print it once, as in a pipe")
    parser.add_argument("--json", action="store_true", help="once, a JSON object on a line for each trajectory")
