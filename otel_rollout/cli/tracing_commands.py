"""The options and help of commands that send, receive or make traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from otel_rollout.cli.argument_types import byte_count, host, positive
from otel_rollout.cli.shared_options import (
    add_command,
    add_filters,
    add_folder,
    add_seconds,
    default_folder,
    exit_codes,
)

__all__ = ["add_demo", "add_doctor", "add_import", "add_receive", "add_replay"]


def add_demo(commands: Any) -> None:
    """Add the command `demo`."""
    parser = add_command(
        commands,
        "demo",
        "run a small agentic rollout and trace it",
        """\
Run a small agentic rollout and trace it: word problems, an agent loop with two
tools, and a policy that makes mistakes.

Without --backend, OTEL_TRACES_EXPORTER and OTEL_EXPORTER_OTLP_ENDPOINT say
where the traces go; without those, they go to the trace folder rollout-traces,
which otel-rollout view opens, and, if mlflow is installed, to MLflow in the
file mlruns.db of this folder.
""",
        exit_codes(
            "every backend has every span",
            failed="spans are missing; the counts say where",
            interrupted="interrupted; what was traced until then was delivered",
        ),
    )
    parser.add_argument(
        "--backend", metavar="NAME[,NAME]", help="mlflow, weave, phoenix, otlp, file, console, or another exporter"
    )
    parser.add_argument("--steps", type=positive, default=2, metavar="N", help="training steps (default: 2)")
    parser.add_argument("--samples", type=positive, default=16, metavar="N", help="problems a step (default: 16)")
    parser.add_argument("--rollouts", type=positive, default=4, metavar="N", help="rollouts of each (default: 4)")
    parser.add_argument("--concurrency", type=positive, default=64, metavar="N", help="at a time (default: 64)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="decides what the policy does (default: 0)")
    parser.add_argument(
        "--faults",
        default="",
        metavar="NAME[,NAME]",
        help="make these go wrong, for diagnose to find; a wrong name lists them all",
    )
    add_seconds(parser, "--timeout", "wait for the backend at the end (default: 60)")
    parser.add_argument("--view", action="store_true", help="trace into the folder, and open it in the browser")


def add_replay(commands: Any) -> None:
    """Add the command `replay`."""
    parser = add_command(
        commands,
        "replay",
        "send recorded trajectories to a backend",
        """\
Send the trajectories of a trace folder, or of a spool, to a backend: with the
ids, times and tags that they were recorded with. Nothing is redacted on the
way: that is done where spans are recorded.

DIR/.replay notes what the backend has confirmed, so that an interrupted replay
goes on where it was, and a second one sends nothing. Sending once more
(--again) adds nothing either, on MLflow, Weave, Phoenix and trackio.
""",
        exit_codes(
            "the backend has everything that was to be replayed",
            failed="it does not; the counts say why",
            interrupted="interrupted; run it again to go on",
        ),
    )
    add_folder(parser)
    parser.add_argument(
        "--backend",
        metavar="NAME[,NAME]",
        help="mlflow, weave, phoenix, otlp, file, or another exporter (default: OTEL_TRACES_EXPORTER)",
    )
    add_filters(parser)
    parser.add_argument("--again", action="store_true", help="send also what was delivered before")
    parser.add_argument("--remove", action="store_true", help="remove each file of a spool once all in it is delivered")
    add_seconds(parser, "--patience", "give up a backend that takes nothing for so long (default: 60)")


def add_receive(commands: Any) -> None:
    """Add the command `receive`."""
    parser = add_command(
        commands,
        "receive",
        "take spans over OTLP, and write them into a trace folder",
        """\
Take spans over OTLP/HTTP (POST /v1/traces, protobuf or JSON) from any number
of senders, and write them into a trace folder. Spans come in any order; a span
that comes twice is stored once. A trajectory is written 10 seconds after the
last span that follows its root.

Beyond this machine (--host 0.0.0.0) senders need a token: it stands in
OTEL_ROLLOUT_RECEIVE_TOKEN or in the file of --token-file.
""",
        exit_codes("ended by SIGTERM, with all that was received written", interrupted="the same, ended by Ctrl-C"),
    )
    add_folder(parser, "the trace folder to write into")
    parser.add_argument(
        "--host", type=host, default="127.0.0.1", metavar="ADDRESS", help="listen on it (default: 127.0.0.1)"
    )
    parser.add_argument("--port", type=int, default=4318, metavar="N", help="the port (default: 4318; 0 is a free one)")
    add_seconds(parser, "--idle", "write a trajectory that has had no new span for so long (default: 900)", 900.0)
    parser.add_argument(
        "--max-open",
        type=positive,
        default=100_000,
        metavar="N",
        help="write the idlest trajectory if more are open (default: 100000)",
    )
    parser.add_argument(
        "--max-bytes", type=byte_count, metavar="SIZE", help="remove the folder's oldest files above it, such as 500GiB"
    )
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="the file with the token that senders show")
    parser.add_argument("--certificate", type=Path, metavar="FILE", help="serve TLS with this certificate (PEM)")
    parser.add_argument("--key", type=Path, metavar="FILE", help="the certificate's key (PEM)")


def add_import(commands: Any) -> None:
    """Add the command `import`."""
    parser = add_command(
        commands,
        "import",
        "add the OpenTelemetry Collector's files to a trace folder",
        """\
Add the spans of files that the Collector's `file` exporter has written to a
trace folder: OTLP JSON and protobuf, compressed or not, rotated or not. Spans
that the folder has are left out: importing a file again, or once it has grown,
adds what is new.
""",
        exit_codes(
            "all spans of the files are in the folder",
            failed="some could not be read; what and why is on standard error",
            interrupted="interrupted; run it again to go on",
        ),
    )
    # `import` is no name of a module.
    parser.set_defaults(module="import_files")
    parser.add_argument("files", metavar="FILE|DIR", nargs="+", type=Path, help="files, or folders of files")
    parser.add_argument(
        "--into",
        metavar="DIR",
        type=Path,
        default=default_folder(),
        help="the trace folder (default: OTEL_ROLLOUT_DIR, else rollout-traces)",
    )


def add_doctor(commands: Any) -> None:
    """Add the command `doctor`."""
    parser = add_command(
        commands,
        "doctor",
        "check the settings, and try each backend",
        """\
Show what the tracer reads in this environment: each setting with its value and
its origin, variables that nothing reads, the exporters that are installed. Then
send one small trajectory to each backend, and read it back if the backend
allows.
""",
        exit_codes("all is well", failed="a backend failed"),
    )
    parser.add_argument(
        "--backend", metavar="NAME[,NAME]", help="mlflow, weave, otlp, … (default: OTEL_TRACES_EXPORTER)"
    )
    parser.add_argument(
        "--project", default="otel-rollout-doctor", help="the trajectory's project (default: otel-rollout-doctor)"
    )
    add_seconds(parser, "--timeout", "for a backend to take the trajectory, and to give it back (default: 60)")
    parser.add_argument("--offline", action="store_true", help="leave the backends alone")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
