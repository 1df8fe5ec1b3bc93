"""The command line: its commands, their options and help. Imports nothing that a command needs."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from otel_rollout import semconv
from otel_rollout.version import __version__

__all__ = ["build_parser", "parse"]

EXIT_CODES: Final = """\
exit codes:
  0    what was asked for is done: shown, checked, or delivered as a whole
  1    spans were lost, or the backend could not be reached in time
  2    the command line, the folder (damaged, say) or the installation needs a change
  130  interrupted; what was traced until then was delivered
  141  nobody reads the output any more
"""

TRACE_ID_DIGITS: Final = 32
MAX_PORT: Final = 65535
_BELOW_ZERO: Final = re.compile(r"-[\d.]")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line; `module`, else `command`, of `otel_rollout.cli` runs it."""
    parser = argparse.ArgumentParser(
        prog="otel-rollout",
        description="Trace agentic RL rollouts: one OpenTelemetry trace per trajectory.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"otel-rollout {__version__}")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    for add in (
        _add_demo,
        _add_ls,
        _add_show,
        _add_stats,
        _add_diagnose,
        _add_view,
        _add_top,
        _add_replay,
        _add_receive,
        _add_import,
        _add_doctor,
    ):
        add(commands)
    return parser


def parse(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """Return the parsed command line; exits with 2 and the usage of its command if it is wrong.

    Args:
        parser: The parser of `build_parser`.
        arguments: The arguments after the program's name.
    """
    parsed, unknown = parser.parse_known_args(_joined(arguments))
    if unknown:
        own = _commands_of(parser).get(parsed.command or "", parser)
        own.error(f"unrecognized arguments: {' '.join(unknown)}")
    return parsed


def _joined(arguments: Sequence[str]) -> list[str]:
    """Join `--reward` with a range that begins with a minus, which argparse takes for an option."""
    joined: list[str] = []
    for argument in arguments:
        if joined and joined[-1] == "--reward" and _BELOW_ZERO.match(argument):
            joined[-1] = f"--reward={argument}"
        else:
            joined.append(argument)
    return joined


def _commands_of(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to its subparsers
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            return action.choices
    return {}


def _add(commands: Any, name: str, short: str, description: str, epilog: str = "") -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=short,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return parser


def _add_demo(commands: Any) -> None:
    parser = _add(
        commands,
        "demo",
        "run a small agentic rollout and trace it",
        """\
Run a small agentic rollout and trace it: word problems, an agent loop with two
tools, and a policy that makes mistakes.

Without --backend, OTEL_TRACES_EXPORTER and OTEL_EXPORTER_OTLP_ENDPOINT say where
the traces go; without those, they go to the trace folder rollout-traces, which
otel-rollout view opens, and, if mlflow is installed, to MLflow in the file
mlruns.db of this folder.
""",
    )
    parser.add_argument("--backend", metavar="NAME[,NAME]", help="mlflow, weave, otlp, console, or another exporter")
    parser.add_argument("--steps", type=_positive, default=2, metavar="N", help="training steps (default: 2)")
    parser.add_argument("--samples", type=_positive, default=16, metavar="N", help="problems a step (default: 16)")
    parser.add_argument("--rollouts", type=_positive, default=4, metavar="N", help="rollouts of each (default: 4)")
    parser.add_argument("--concurrency", type=_positive, default=64, metavar="N", help="at a time (default: 64)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="decides what the policy does (default: 0)")
    parser.add_argument(
        "--faults",
        default="",
        metavar="NAME[,NAME]",
        help="make these go wrong, for diagnose to find; a wrong name lists them all",
    )
    _add_seconds(parser, "--timeout", "wait for the backend at the end (default: 60)")
    parser.add_argument("--view", action="store_true", help="trace into the folder, and open it in the browser")


def _add_ls(commands: Any) -> None:
    parser = _add(
        commands,
        "ls",
        "list a trace folder by step, the trajectories of a step, or the rollouts of a prompt",
        """\
List a trace folder by experiment and training step; with --step, the
trajectories of that step; with --sample, the rollouts of a prompt side by side,
with their answers, rewards and advantages.
""",
    )
    _add_folder(parser)
    _add_filters(parser)
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="a JSON object on a line of its own for each row")
    forms.add_argument(
        "--perfetto",
        metavar="FILE",
        type=Path,
        help="write when each span ran into FILE, for ui.perfetto.dev and chrome://tracing",
    )


def _add_show(commands: Any) -> None:
    parser = _add(
        commands,
        "show",
        "show one trajectory of a trace folder: as a tree, or as a conversation",
        """\
Show one trajectory as a tree of its spans: kind, duration, when each ran, input
and output; or with --chat as a conversation. Name it by --step, --sample and
--rollout (and --experiment, if the folder has several), or by --trace.
""",
    )
    _add_folder(parser)
    parser.add_argument("--trace", metavar="ID", type=_trace_id, help="its trace id; the beginning will do")
    _add_filters(parser)
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--chat", action="store_true", help="the conversation: who said what, tool calls, the reward")
    forms.add_argument("--full", action="store_true", help="whole payloads, all attributes and events")
    forms.add_argument("--json", action="store_true", help="one line of OTLP JSON, as any OTLP receiver takes it")


def _add_stats(commands: Any) -> None:
    parser = _add(
        commands,
        "stats",
        "count what a trace folder holds",
        """\
Count what a trace folder holds: trajectories, spans, and bytes as OTLP JSON and
on disk, in each step and altogether; who wrote it, what is open, what is torn.
""",
    )
    _add_folder(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object")


def _add_view(commands: Any) -> None:
    parser = _add(
        commands,
        "view",
        "open a run in a browser: steps, groups, trajectories, timelines, search",
        """\
Serve the pages of one or more trace folders on this machine, and open them in
a browser: the steps of the run, the groups of a step with the rollouts of a
prompt side by side, each trajectory with its spans, timelines, search. They
change while training writes; a folder that does not exist yet is waited for.

The address has a random token, without which nothing is shown.
""",
    )
    parser.add_argument(
        "folders",
        metavar="DIR",
        nargs="*",
        type=Path,
        default=[_default_folder()],
        help="trace folders, or spools (default: OTEL_ROLLOUT_DIR, else rollout-traces)",
    )
    parser.add_argument("--port", type=_port, metavar="N", help="the port (default: 8642, or the next free one)")
    parser.add_argument("--host", default="127.0.0.1", metavar="NAME", help="the interface (default: 127.0.0.1)")
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
    export.add_argument("--step", type=_steps, metavar="N", help="only a training step: 7, or 1,4,7, or 3..9, or 100..")


def _add_diagnose(commands: Any) -> None:
    parser = _add(
        commands,
        "diagnose",
        "find what is wrong with a run, with the trajectories that prove it",
        """\
Check a trace folder: groups without signal, truncation, tools that fail,
failures that the model isn't to blame for, duplicates, prefix breaks, parts of
the reward that are hacked, stragglers, stale weights, lost spans. Each finding
has its threshold, what it means, what to try, and trajectories that prove it.
""",
        """\
exit codes:
  0    nothing is above its threshold
  1    something is
  2    the command line or the folder needs a change
""",
    )
    _add_folder(parser)
    parser.add_argument("--step", type=_steps, metavar="N", help="a training step: 7, or 1,4,7, or 3..9, or 100..")
    parser.add_argument(
        "--against", metavar="STEP|DIR", help="compare with a step of this folder, or with another folder"
    )
    parser.add_argument(
        "--threshold",
        action="append",
        default=[],
        type=_threshold,
        metavar="NAME=VALUE",
        help="another threshold of a check, such as truncated=0.05; may be given more than once",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def _add_top(commands: Any) -> None:
    parser = _add(
        commands,
        "top",
        "show the trajectories that run now, and what a step waits for",
        """\
Show the trajectories that run for longer than a few seconds, the longest first:
where each is, for how long, and how long 99% of such ops took. After a crash,
show what was open. The processes write that into the trace folder every two
seconds; other exporters than `file` don't. On a terminal it goes on until Ctrl-C.
""",
    )
    parser.add_argument(
        "folders",
        metavar="DIR",
        nargs="*",
        type=Path,
        default=[_default_folder()],
        help="trace folders (default: OTEL_ROLLOUT_DIR, else rollout-traces)",
    )
    parser.add_argument("--once", action="store_true", help="print it once, as in a pipe")
    parser.add_argument("--json", action="store_true", help="once, a JSON object on a line for each trajectory")


def _add_replay(commands: Any) -> None:
    parser = _add(
        commands,
        "replay",
        "send recorded trajectories to a backend",
        """\
Send the trajectories of a trace folder, or of a spool, to a backend: with the
ids, times and tags that they were recorded with.

DIR/.replay notes what the backend has confirmed, so that an interrupted replay
goes on where it was, and a second one sends nothing. Sending once more (--again)
adds nothing either, on MLflow, Weave and Phoenix.
""",
        """\
exit codes:
  0    the backend has everything that was to be replayed
  1    it does not; the counts say why
  2    the command line or a setting needs a change
  130  interrupted; run it again to go on
""",
    )
    _add_folder(parser)
    parser.add_argument(
        "--backend",
        metavar="NAME[,NAME]",
        help="mlflow, weave, otlp, or another exporter (default: OTEL_TRACES_EXPORTER)",
    )
    _add_filters(parser)
    parser.add_argument("--again", action="store_true", help="send also what was delivered before")
    parser.add_argument("--remove", action="store_true", help="remove each file of a spool once all in it is delivered")
    _add_seconds(parser, "--patience", "give up a backend that takes nothing for so long (default: 60)")


def _add_receive(commands: Any) -> None:
    parser = _add(
        commands,
        "receive",
        "take spans over OTLP, and write them into a trace folder",
        """\
Take spans over OTLP/HTTP (POST /v1/traces, protobuf or JSON) from any number of
senders, and write them into a trace folder. Spans come in any order; a span that
comes twice is stored once. A trajectory is written 10 seconds after the last
span that follows its root.

Beyond this machine (--host 0.0.0.0) senders need a token: it stands in
OTEL_ROLLOUT_RECEIVE_TOKEN or in the file of --token-file.
""",
    )
    _add_folder(parser)
    parser.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="listen on it (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=4318, metavar="N", help="the port (default: 4318; 0 is a free one)")
    _add_seconds(parser, "--idle", "write a trajectory that has had no new span for so long (default: 900)", 900.0)
    parser.add_argument(
        "--max-open",
        type=_positive,
        default=100_000,
        metavar="N",
        help="write the idlest trajectory if more are open (default: 100000)",
    )
    parser.add_argument(
        "--max-bytes", type=_bytes, metavar="SIZE", help="remove the folder's oldest files above it, such as 500GiB"
    )
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="the file with the token that senders show")
    parser.add_argument("--certificate", type=Path, metavar="FILE", help="serve TLS with this certificate (PEM)")
    parser.add_argument("--key", type=Path, metavar="FILE", help="the certificate's key (PEM)")


def _add_import(commands: Any) -> None:
    parser = _add(
        commands,
        "import",
        "add the OpenTelemetry Collector's files to a trace folder",
        """\
Add the spans of files that the Collector's `file` exporter has written to a
trace folder: OTLP JSON and protobuf, compressed or not, rotated or not. Spans that
the folder has are left out: importing a file again, or once it has grown, adds
what is new.
""",
        """\
exit codes:
  0    all spans of the files are in the folder
  1    some could not be read; what and why is on standard error
  2    a file or the folder needs a change
  130  interrupted; run it again to go on
""",
    )
    # `import` is no name of a module.
    parser.set_defaults(module="import_files")
    parser.add_argument("files", metavar="FILE|DIR", nargs="+", type=Path, help="files, or folders of files")
    parser.add_argument(
        "--into",
        metavar="DIR",
        type=Path,
        default=_default_folder(),
        help="the trace folder (default: OTEL_ROLLOUT_DIR, else rollout-traces)",
    )


def _add_doctor(commands: Any) -> None:
    parser = _add(
        commands,
        "doctor",
        "check the settings, and try each backend",
        """\
Show what the tracer reads in this environment: each setting with its value and
its origin, variables that nothing reads, the exporters that are installed. Then
send one small trajectory to each backend, and read it back if the backend
allows.
""",
        """\
exit codes:
  0  all is well
  1  a backend failed
  2  a setting needs a change
""",
    )
    parser.add_argument(
        "--backend", metavar="NAME[,NAME]", help="mlflow, weave, otlp, … (default: OTEL_TRACES_EXPORTER)"
    )
    parser.add_argument(
        "--project", default="otel-rollout-doctor", help="the trajectory's project (default: otel-rollout-doctor)"
    )
    _add_seconds(parser, "--timeout", "for a backend to take the trajectory, and to give it back (default: 60)")
    parser.add_argument("--offline", action="store_true", help="leave the backends alone")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _add_seconds(parser: argparse.ArgumentParser, option: str, meaning: str, default: float = 60.0) -> None:
    parser.add_argument(option, type=_seconds, default=default, metavar="SECONDS", help=meaning)


def _add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder",
        metavar="DIR",
        nargs="?",
        type=Path,
        default=_default_folder(),
        help="the trace folder, or a spool (default: OTEL_ROLLOUT_DIR, else rollout-traces)",
    )


def _default_folder() -> Path:
    return Path(os.environ.get("OTEL_ROLLOUT_DIR") or "rollout-traces")


def _add_filters(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("which trajectories", "All filters that are given must agree.")
    group.add_argument(
        "--step", type=_steps_or_none, metavar="N", help="a training step: 7, or 1,4,7, or 3..9, or 100..; or none"
    )
    group.add_argument("--sample", dest="sample_index", metavar="INDEX", help="a prompt, by its sample_index")
    group.add_argument("--rollout", dest="rollout_n", metavar="N", help="a rollout of the prompt, by its rollout_n")
    passes = group.add_mutually_exclusive_group()
    passes.add_argument("--validate", action="store_const", const=True, help="validation only")
    passes.add_argument("--train", dest="validate", action="store_const", const=False, help="no validation")
    group.add_argument("--experiment", metavar="NAME", help="an experiment")
    group.add_argument("--status", choices=semconv.STATUSES, help="how it ended")
    group.add_argument(
        "--reward",
        type=_range_of_rewards,
        metavar="MIN..MAX",
        help="both included; 0.5.. and ..0.5 are open",
    )


def _above_zero(read: Callable[[str], float], meaning: str) -> Callable[[str], float]:
    def check(text: str) -> float:
        with suppress(ValueError):
            number = read(text)
            if 0 < number < math.inf:
                return number
        raise argparse.ArgumentTypeError(f"{text!r} is not {meaning}")

    return check


def _port(text: str) -> int:
    with suppress(ValueError):
        if 0 <= (port := int(text)) <= MAX_PORT:
            return port
    raise argparse.ArgumentTypeError(f"{text!r} is not a port: 0 to {MAX_PORT}")


_positive = _above_zero(int, "a positive whole number")
_seconds = _above_zero(float, "a number of seconds")


def _bytes(text: str) -> int:
    from otel_rollout.settings import read_bytes

    try:
        return read_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not {error}") from None


def _steps_or_none(text: str) -> int | range | set[int] | set[None]:
    return {None} if text == "none" else _steps(text)


def _steps(text: str) -> int | range | set[int]:
    first, dots, last = text.partition("..")
    try:
        if dots:
            steps_in_range = range(int(first or 0), int(last) + 1 if last else sys.maxsize)
            if not steps_in_range:
                raise ValueError
            return steps_in_range
        steps = {int(step) for step in text.split(",")}
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a step: 7, or 1,4,7, or 3..9, or 100..") from None
    return steps.pop() if len(steps) == 1 else steps


def _threshold(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    with suppress(ValueError):
        number = float(value)
        if 0 <= number < math.inf:
            return name.strip(), number
    raise argparse.ArgumentTypeError(f"{text!r} is not a threshold: truncated=0.05")


def _range_of_rewards(text: str) -> tuple[float | None, float | None]:
    low, dots, high = text.partition("..")
    if not dots:
        high = low
    try:
        bounds = (float(low) if low else None, float(high) if high else None)
    except ValueError:
        bounds = (math.nan, None)
    if any(bound is not None and math.isnan(bound) for bound in bounds) or bounds == (None, None):
        raise argparse.ArgumentTypeError(f"{text!r} is not a range of rewards: 0.5..1, or 0.5.., or ..0.5, or 1")
    return bounds


def _trace_id(text: str) -> str:
    digits = text.lower().removeprefix("0x")
    if not digits or len(digits) > TRACE_ID_DIGITS or set(digits) - set("0123456789abcdef"):
        raise argparse.ArgumentTypeError(f"{text!r} is not the beginning of a trace id: 32 hexadecimal digits")
    return digits
