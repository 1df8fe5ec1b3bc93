"""`otel-rollout receive`: take spans over OTLP, and write them into a trace folder."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from otel_rollout.cli.options import add_folder, add_seconds, byte_count, exit_codes, host, positive
from otel_rollout.errors import ConfigurationError, MissingExtraError
from otel_rollout.installing import install_line
from otel_rollout.receive.access import read_token
from otel_rollout.text.plain_text import printable


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the description and the options of the command."""
    parser.description = """\
Take spans over OTLP/HTTP (POST /v1/traces, protobuf or JSON) from any number
of senders, and write them into a trace folder. Spans come in any order; a span
that comes twice is stored once. A trajectory is written 10 seconds after the
last span that follows its root.

Beyond this machine (--host 0.0.0.0) senders need a token: it stands in
OTEL_ROLLOUT_RECEIVE_TOKEN or in the file of --token-file.
"""
    parser.epilog = exit_codes(
        "ended by SIGTERM, with all that was received written", interrupted="the same, ended by Ctrl-C"
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


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    token = read_token(arguments.host, arguments.token_file)
    if (arguments.certificate is None) != (arguments.key is None):
        raise ConfigurationError("--certificate and --key: TLS needs both")
    try:
        from otel_rollout.receive.app import make_app
        from otel_rollout.receive.server import Address, run_server
    except ImportError as error:
        raise MissingExtraError(f"`receive` needs a web server ({error}): {install_line('receive')}") from error
    from otel_rollout.receive.adoption import open_folder
    from otel_rollout.receive.receiver import Receiver
    from otel_rollout.receive.status_line import StatusLine, describe_totals

    receiver = Receiver(
        open_folder(
            arguments.folder, idle_seconds=arguments.idle, max_bytes=arguments.max_bytes, max_open=arguments.max_open
        )
    )
    line = StatusLine(receiver)
    ended_by = run_server(
        make_app(receiver, token),
        receiver,
        Address(arguments.host, arguments.port, arguments.certificate, arguments.key),
        lambda url: print(printable(f"receiving at {url} into {arguments.folder}"), flush=True),
        line.show,
    )
    line.clear()
    print(describe_totals(receiver))
    if trouble := receiver.totals.trouble:
        print(printable(f"the disk failed: {trouble}"), file=sys.stderr)
    return 130 if ended_by == signal.SIGINT else 0
