"""`otel-rollout receive`: take spans over OTLP, and write them into a trace folder."""

from __future__ import annotations

import argparse
import signal
import sys

from otel_rollout.errors import ConfigurationError, MissingExtraError
from otel_rollout.installing import install_line
from otel_rollout.receive.access import read_token
from otel_rollout.text.plain_text import printable

__all__ = ["run"]


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
    from otel_rollout.receive.received_folder import ReceivedFolder
    from otel_rollout.receive.receiver import Receiver
    from otel_rollout.receive.status_line import StatusLine, describe_totals

    receiver = Receiver(
        ReceivedFolder(
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
